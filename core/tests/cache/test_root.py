"""Whose folder is it? Refusals that a user can act on, and modes that no umask changes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from rigs.cache import CacheRig, Thing
from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cache.ledger import Limits
from stoker.cache.owner import CacheOwner
from stoker.cache.root import MARKER, open_folder, tier_seed
from stoker.cache.tier import TierConfig


def refusal(path: str) -> StokerError:
    with pytest.raises(StokerError) as caught:
        open_folder(path)
    assert caught.value.place
    assert caught.value.next_step
    return caught.value


def test_a_new_folder_is_made_and_known_again(tmp_path: Path) -> None:
    root = str(tmp_path / "a" / "cache")
    first = open_folder(root)
    first.close()
    again = open_folder(root)
    again.close()
    assert first.seed == again.seed == tier_seed(root)


def test_a_fresh_file_system_is_not_foreign(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    open_folder(str(tmp_path)).close()


@pytest.mark.parametrize("content", ["file.txt", ".hidden", "objects"])
def test_a_folder_with_something_in_it_is_refused_and_untouched(tmp_path: Path, content: str) -> None:
    (tmp_path / content).write_text("precious")
    assert refusal(str(tmp_path)).reason is Reason.CacheFolderForeign
    assert content in refusal(str(tmp_path)).message
    assert [path.name for path in tmp_path.iterdir()] == [content]


@pytest.mark.parametrize("marker", ["", "{}", "[]", '{"format": 1}', '{"format": 1, "id": "x"}'])
def test_a_marker_that_is_not_ours_is_foreign(tmp_path: Path, marker: str) -> None:
    (tmp_path / MARKER).write_text(marker)
    assert refusal(str(tmp_path)).reason is Reason.CacheFolderForeign


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    open_folder(str(tmp_path)).close()
    marker = json.loads((tmp_path / MARKER).read_text())
    (tmp_path / MARKER).write_text(json.dumps({**marker, "format": 99}))
    assert "format 99" in refusal(str(tmp_path)).message


def test_the_root_and_a_file_are_refused(tmp_path: Path) -> None:
    assert refusal("/").reason is Reason.CacheFolderForeign
    (tmp_path / "file").write_text("")
    assert refusal(str(tmp_path / "file")).reason is Reason.CacheFolderForeign
    (tmp_path / "link").symlink_to("/")
    assert refusal(str(tmp_path / "link")).reason is Reason.CacheFolderForeign


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    first = open_folder(str(tmp_path))
    assert refusal(str(tmp_path)).reason is Reason.CacheFolderLocked
    first.close()
    open_folder(str(tmp_path)).close()


def test_a_dead_owner_leaves_no_lock(tmp_path: Path) -> None:
    pid = os.fork()
    if not pid:
        open_folder(str(tmp_path))
        os._exit(0)
    os.waitpid(pid, 0)
    open_folder(str(tmp_path)).close()


@pytest.fixture
def small_disk(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A file system of 1 MiB. Needs the right to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_up(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_a_read_only_disk_is_refused(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert refusal(str(small_disk)).reason is Reason.CacheFolderReadOnly
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    open_folder(str(small_disk)).close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert refusal(str(small_disk)).reason is Reason.CacheFolderReadOnly


def test_a_full_disk_opens_and_stores_nothing(small_disk: Path) -> None:
    events = []
    fill_up(small_disk / "lost+found")
    owner = CacheOwner.open(
        [TierConfig(str(small_disk), Limits(0, reserve_free=0))], [], bytes(16), on_event=lambda *e: events.append(e)
    )
    assert owner.usage()[0].state == "full"
    assert owner.grant(0, 0, 7, 16384, 1).bytes == 0
    assert [event[1] for event in events] == [Reason.CacheFull]
    assert owner.counts([(bytes(20), 5)]) == (0, 0)
    owner.close()


def test_a_disk_without_inodes_is_full_however_many_bytes_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []
    owner = CacheOwner.open([TierConfig(str(tmp_path), Limits(0))], [], bytes(16), on_event=lambda *e: events.append(e))
    owner.recover()
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1 << 30, f_frsize=1, f_favail=0, f_files=9))
    grant = owner.grant(0, 0, 7, 1 << 20, 4)
    assert grant.bytes
    assert not grant.inodes
    assert owner.usage()[0].state == "full"
    assert [event[1] for event in events] == [Reason.CacheFull]
    owner.close()


def wrong_modes(root: Path) -> dict[str, int]:
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")]}
    return {str(path): mode for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)}


def test_ca11_private_whatever_the_umask_and_whatever_was_there_before(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    before = os.umask(0)
    try:
        rig = CacheRig([str(root)], Limits(64 << 20, reserve_free=0))
        assert asyncio.run(rig.load(Thing("secret", 100_000)))
        rig.commit()
        assert wrong_modes(root) == {}
        rig.stop()
        for path in [root, *root.rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o644)
        rig.start()
        assert wrong_modes(root) == {}
        rig.close()
    finally:
        os.umask(before)


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_ca11_another_user_reads_nothing(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/pytest"):
            folder.chmod(0o755)
    rig = CacheRig([str(tmp_path / "cache")], Limits(64 << 20, reserve_free=0))
    thing = Thing("secret", 100_000)
    assert asyncio.run(rig.load(thing))
    rig.commit()
    for path in (rig.path(thing), f"{tmp_path}/cache/index/data.mdb", f"{tmp_path}/cache/{MARKER}"):
        read = subprocess.run(["cat", str(path)], user=2000, group=2000, extra_groups=[], capture_output=True)
        assert read.returncode != 0
        assert b"Permission denied" in read.stderr
    rig.close()
