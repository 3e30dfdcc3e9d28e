"""`stoker doctor`: each check's verdict for what it may find, and the whole of it on this machine."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cli import checks, diskchecks
from stoker.cli.checks import Check, State
from stoker.cli.trial import Offer
from stoker.node.mountinfo import MountEntry

GIB = 1 << 30

VERDICTS: list[tuple[Check, State]] = [
    (checks.passthrough(Offer(True, ""), "6.9", 0), State.OK),
    (checks.passthrough(Offer(False, ""), "6.1", 0), State.WARN),
    (checks.passthrough(Offer(False, ""), "6.9", 1000), State.WARN),
    (checks.clone(Offer(True, "")), State.OK),
    (checks.clone(Offer(True, "Inappropriate ioctl")), State.FAIL),
    (checks.fusermount(0, None), State.OK),
    (checks.fusermount(1000, "/usr/bin/fusermount3"), State.OK),
    (checks.fusermount(1000, None), State.FAIL),
    (checks.readers(1000), State.OK),
    (checks.max_pages(None), State.OK),
    (checks.max_pages(256), State.OK),
    (checks.max_pages(32), State.WARN),
    (checks.request_timeout(0), State.OK),
    (checks.request_timeout(60), State.WARN),
    (checks.open_files(resource.RLIM_INFINITY), State.OK),
    (checks.open_files(1024), State.WARN),
    (checks.memory(2 * GIB), State.OK),
    (checks.memory(GIB // 2), State.WARN),
    (checks.run_dir("/run/stoker"), State.OK),
    (checks.run_dir("/a" * 60), State.FAIL),
    (diskchecks.file_system(MountEntry("/", "ext4", "/dev/sda", "8:0")), State.OK),
    (diskchecks.file_system(MountEntry("/", "nfs4", "server:/", "0:1")), State.WARN),
    (diskchecks.file_system(MountEntry("/", "fuse.sshfs", "host:", "0:1")), State.WARN),
    (diskchecks.file_system(MountEntry("/", "tmpfs", "tmpfs", "0:1")), State.WARN),
    (diskchecks.room(100 * GIB, -10 * GIB, 0), State.OK),
    (diskchecks.room(10 * GIB, -10 * GIB, 0), State.WARN),
    (diskchecks.room(100 * GIB, 500 * GIB, 0), State.OK),
    (diskchecks.room(100 * GIB, 1 << 20, 0), State.WARN),
    (diskchecks.inodes(0, 0), State.OK),
    (diskchecks.inodes(1 << 20, 1 << 21), State.OK),
    (diskchecks.inodes(10, 1 << 21), State.WARN),
    (diskchecks.rights("/nonexistent/cache", "/proc/self/status"), State.FAIL),
]


@pytest.mark.parametrize(("check", "state"), VERDICTS, ids=[f"{c.name} {c.found}" for c, _ in VERDICTS])
def test_verdict(check: Check, state: State) -> None:
    assert check.state is state
    assert check.found
    if state is not State.OK:
        assert check.cost, "what it costs is said"
        assert check.step, "what to do is said"


@pytest.mark.fuse
def test_on_this_machine(place: Path, stoker: Callable[..., Any]) -> None:
    done = stoker("doctor", "--json")
    found = json.loads(done.out)
    names = [check["name"] for check in found["checks"]]
    assert names[:3] == ["FUSE mount", "passthrough", "clone"]
    assert {"cache disk", "cache room", "cache files", "open files", "memory", "versions"} <= set(names)
    assert done.code == (0 if found["ok"] else 1)
    assert list(place.iterdir()) == [], "the doctor leaves nothing"
    assert "stoker-trial" not in Path("/proc/self/mountinfo").read_text()


def test_without_fuse_it_says_so_and_fails(
    place: Path, stoker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> Offer:
        raise StokerError(Reason.FuseUnavailable, "there is no /dev/fuse", next_step="modprobe fuse")

    monkeypatch.setattr(checks, "trial_mount", refused)
    done = stoker("doctor")
    assert done.code == 1
    assert "there is no /dev/fuse" in done.out
    assert "cost: nothing can be mounted" in done.out
    assert "modprobe fuse" in done.out
    assert "--device /dev/fuse" in done.out
