"""A real node for tests: its own state, sockets and cache; driven by the `stoker` command and the admin API."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STOKER = [sys.executable, "-m", "stoker.cli.main"]


@dataclass
class Node:
    """Folders and environment of one node; nothing runs until the first command that needs it."""

    root: Path
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        hidden = ("AWS_", "STOKER_")
        base = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
        # A short folder of its own: the path of a unix socket has at most 107 bytes.
        return {
            **base,
            "AWS_EC2_METADATA_DISABLED": "true",
            "HOME": str(self.root),
            "STOKER_STATE_DIR": str(self.root / "state"),
            "STOKER_RUN_DIR": str(self.root / "run"),
            "STOKER_CACHE_DIR": str(self.root / "cache"),
            **self.settings,
        }

    def run(self, *arguments: str, stdin: str = "", timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """A `stoker` command; its exit code and output are the caller's to judge."""
        return subprocess.run(
            [*STOKER, *arguments],
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=self.root,
        )

    def ok(self, *arguments: str, stdin: str = "", timeout: float = 60) -> str:
        """A command that must succeed: its standard output."""
        done = self.run(*arguments, stdin=stdin, timeout=timeout)
        assert done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stderr}\n{self.log()[-4000:]}"
        return done.stdout

    def mount(self, document: dict[str, Any], name: str = "data") -> Path:
        """Mount one DataSet document; the mountpoint."""
        mountpoint = self.root / name
        mountpoint.mkdir(exist_ok=True)
        self.ok("mount", "-f", "-", str(mountpoint), stdin=json.dumps(document))
        return mountpoint

    def api(self, method: str, path: str) -> Any:
        connection = http.client.HTTPConnection("localhost", timeout=30)
        with contextlib.closing(connection), socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(self.root / "run" / "admin.sock"))
            connection.sock = sock
            connection.request(method, path)
            return json.loads(connection.getresponse().read())

    def status(self, name: str = "data") -> dict[str, Any]:
        """What `stoker status --json` says of one mount."""
        mounts = self.api("GET", "/v1/status")["mounts"]
        return next(m for m in mounts if m["mountpoint"] == str(self.root / name))

    def pids(self, role: str) -> list[int]:
        """The living processes of a role, by their locks; `supervisor` is the parent of the template."""
        found = []
        for path in (self.root / "run").glob(f"{role}-*.lock"):
            with contextlib.suppress(ValueError):
                found.append(int(path.read_text()))
        return [pid for pid in found if alive(pid)]

    def kill(self, pid: int) -> None:
        """SIGKILL, and wait until it is dead."""
        pidfd = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not alive(pid))
        os.close(pidfd)

    def log(self) -> str:
        path = self.root / "state" / "node.log"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        """Unmount and end everything, whatever state it is in."""
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            self.api("POST", "/v1/shutdown")
        end = time.monotonic() + 10
        while time.monotonic() < end and processes_of(self.root):
            time.sleep(0.02)
        for pid in processes_of(self.root):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            mountpoint = line.split()[4].encode().decode("unicode_escape")
            if mountpoint.startswith(str(self.root)):
                subprocess.run(["umount", "-l", mountpoint], check=False, capture_output=True)


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def processes_of(root: Path) -> list[int]:
    """Processes whose environment names this node's state folder."""
    needle = f"STOKER_STATE_DIR={root / 'state'}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if needle in Path(f"/proc/{entry.name}/environ").read_bytes() and alive(int(entry.name)):
                    found.append(int(entry.name))
    return found


def wait_for(condition: Any, timeout_s: float = 20, what: str = "") -> Any:
    """Poll with a deadline; the first true value."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {timeout_s} s: {what or condition}")


@contextlib.contextmanager
def running_node(root: Path, **settings: str) -> Iterator[Node]:
    node = Node(root, settings)
    try:
        yield node
    finally:
        node.close()


def data_set(name: str, *sources: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A DataSet document."""
    return {
        "apiVersion": "stoker.dev/v1alpha1",
        "kind": "DataSet",
        "metadata": {"name": name},
        "spec": {"sources": list(sources), **spec},
    }
