"""The checks of `stoker doctor`, apart from those of the disk. Each looks at one thing and changes nothing."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version

from stoker.api.errors import StokerError
from stoker.api.human import size
from stoker.api.reasons import Reason
from stoker.cli.trial import Offer, trial_mount
from stoker.node.settings import MAX_RUN_DIR, Settings

_FUSE = "/proc/sys/fs/fuse"
_PAGES_WANTED = 256  # pages of 4 KiB in one request: 1 MiB
_FILES_WANTED = 16384  # half of them hold cache files open; the rest are sockets, clones and index files
_MEMORY_WANTED = 1 << 30  # bytes: 512 MiB for the node and as much for the page cache to be of any use
_ALLOW_FUSE = "load the kernel's module (modprobe fuse); in a container: --device /dev/fuse --cap-add SYS_ADMIN."
_LIBRARIES = ("obstore", "lmdb", "aiohttp", "botocore", "google-crc32c", "pydantic", "click")


class State(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor: what was found, what it costs, what to do."""

    name: str
    state: State
    found: str
    cost: str = ""
    step: str = ""

    def to_json(self) -> dict[str, str]:
        return {name: str(getattr(self, name)) for name in self.__slots__}


def run_checks(settings: Settings) -> list[Check]:
    """All checks, in the order in which they matter."""
    from stoker.cli.diskchecks import disk_checks

    checks = [*_fuse_checks(), fusermount(os.geteuid(), shutil.which("fusermount3"))]
    checks += [max_pages(read_number(f"{_FUSE}/max_pages_limit")), _request_timeout(), readers(os.geteuid())]
    checks += disk_checks(settings)
    checks += [open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1]), memory(_memory_available())]
    checks += [run_dir(settings.runtime_dir), _versions()]
    return checks


def _fuse_checks() -> Iterator[Check]:
    kernel = platform.release()
    try:
        offer = trial_mount()
    except StokerError as error:
        step = error.next_step if error.reason is Reason.PermissionDenied else _ALLOW_FUSE
        yield Check("FUSE mount", State.FAIL, error.message, "nothing can be mounted", step)
        yield Check("kernel", State.OK, kernel)
        return
    yield Check("FUSE mount", State.OK, "a trial mount was made and taken away")
    yield passthrough(offer, kernel, os.geteuid())
    yield clone(offer)


def passthrough(offer: Offer, kernel: str, uid: int) -> Check:
    """Whether reads of large cached files can go around us."""
    if offer.passthrough:
        return Check("passthrough", State.OK, f"kernel {kernel} has it")
    cost = "large cached files are read through Stoker, not at the disk's own speed"
    if uid != 0:
        return Check("passthrough", State.WARN, "only root has it", cost, "run the node as root.")
    step = "use a kernel of 6.9 or later, and CAP_SYS_ADMIN in a container."
    return Check("passthrough", State.WARN, f"kernel {kernel} does not offer it", cost, step)


def clone(offer: Offer) -> Check:
    """Whether several workers can serve one mount."""
    if not offer.clone:
        return Check("clone", State.OK, "a connection was cloned")
    return Check("clone", State.FAIL, offer.clone, "workers cannot share a mount", "use a kernel of 4.2 or later.")


def fusermount(uid: int, program: str | None) -> Check:
    """What mounts for ordinary users."""
    if program is not None:
        return Check("fusermount3", State.OK, program)
    if uid == 0:
        return Check("fusermount3", State.OK, "not installed; root needs none")
    step = "apt-get install fuse3, or run as root."
    return Check("fusermount3", State.FAIL, "not installed", "an ordinary user cannot mount", step)


def readers(uid: int) -> Check:
    """Who may read what is mounted."""
    if uid == 0:
        return Check("readers", State.OK, "every user of this machine, as the file modes allow")
    found = "only you: a mount of an ordinary user is closed to all others, root too"
    return Check("readers", State.OK, found)


def max_pages(limit: int | None) -> Check:
    """How much one request of the kernel may ask for."""
    if limit is None or limit >= _PAGES_WANTED:
        return Check("request size", State.OK, "1 MiB")
    step = f"sysctl fs.fuse.max_pages_limit={_PAGES_WANTED}"
    return Check("request size", State.WARN, size(limit * 4096), "more requests for the same bytes", step)


def _request_timeout() -> Check:
    longest = max(read_number(f"{_FUSE}/{name}") or 0 for name in ("max_request_timeout", "default_request_timeout"))
    return request_timeout(longest)


def request_timeout(seconds: int) -> Check:
    """The kernel ends the whole connection when one request takes longer."""
    if not seconds:
        return Check("request timeout", State.OK, "none")
    cost = "the kernel aborts a whole mount when one read of a slow store takes longer"
    step = "sysctl fs.fuse.max_request_timeout=0 fs.fuse.default_request_timeout=0"
    return Check("request timeout", State.WARN, f"{seconds} s", cost, step)


def open_files(limit: int) -> Check:
    """How many files a process may have open, at most."""
    if limit == resource.RLIM_INFINITY or limit >= _FILES_WANTED:
        return Check("open files", State.OK, "no limit" if limit == resource.RLIM_INFINITY else f"{limit:,}")
    cost = "cache files are opened and closed more often: many small files are read more slowly"
    return Check(
        "open files", State.WARN, f"{limit:,}", cost, f"raise the hard limit to {_FILES_WANTED:,} (ulimit -Hn)."
    )


def memory(available: int) -> Check:
    """What is left for us and the page cache."""
    if available >= _MEMORY_WANTED:
        return Check("memory", State.OK, f"{size(available)} available")
    cost = "the kernel keeps less of what was read"
    return Check("memory", State.WARN, f"{size(available)} available", cost, "free some; 1 GiB is comfortable.")


def run_dir(path: str) -> Check:
    """A unix socket's path has a limit."""
    if len(path) <= MAX_RUN_DIR:
        return Check("sockets", State.OK, path)
    return Check("sockets", State.FAIL, f"{path} is too long", "the node cannot start", "set STOKER_RUN_DIR.")


def _versions() -> Check:
    found = [f"Python {sys.version.split()[0]}"]
    for name in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return Check("versions", State.OK, ", ".join(found))


def _memory_available() -> int:
    """Of the machine, or of the control group where that is less."""
    found = [_meminfo("MemAvailable")]
    limit, used = read_number("/sys/fs/cgroup/memory.max"), read_number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        found.append(limit - used)
    return min(found)


def _meminfo(name: str) -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0


def read_number(path: str) -> int | None:
    """The number in a file of the kernel, None where there is none."""
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
        return int(file.read())
    return None
