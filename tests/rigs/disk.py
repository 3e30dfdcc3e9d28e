"""A small disk of its own (a file system in a file, on a loop device) that a test fills, breaks and repairs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass
class Disk:
    """An ext4 mounted at `root`, its image in `folder`."""

    folder: Path
    mebibytes: int
    inodes: int
    number: int = 0
    _files: int = 0
    _hog: threading.Thread | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def root(self) -> Path:
        return self.folder / "disk"

    def fill(self) -> None:
        """Another program takes all space that is free or becomes free."""
        self._begin(self._take_space)

    def take_inodes(self) -> None:
        """Another program makes as many files as there can be."""
        (self.root / "others").mkdir()
        self._begin(self._take_files)

    def give_back(self) -> None:
        """The other program ends, and removes what it made."""
        self._end()
        (self.root / "other").unlink(missing_ok=True)
        shutil.rmtree(self.root / "others", ignore_errors=True)

    def _begin(self, take: Callable[[], None]) -> None:
        def hog() -> None:
            while not self._stop.wait(0.01):
                take()

        take()
        self._hog = threading.Thread(target=hog, daemon=True)
        self._hog.start()

    def _end(self) -> None:
        self._stop.set()
        if self._hog is not None:
            self._hog.join()

    def _take_space(self) -> None:
        with open(self.root / "other", "ab", buffering=0) as file:
            for size in (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while not self._stop.is_set() and file.tell() < self.mebibytes << 20:
                        file.write(bytes(size))

    def _take_files(self) -> None:
        with contextlib.suppress(OSError):
            while not self._stop.is_set() and self._files < 4 * self.inodes:
                (self.root / "others" / str(self._files)).touch(exist_ok=False)
                self._files += 1

    def fail(self) -> None:
        """What the kernel does to a file system with errors: nothing can be written any more, until it is replaced."""
        run("mount", "-o", "remount,abort", str(self.root))

    def replace(self) -> None:
        """A new, empty disk in the old one's place, which processes may still have open."""
        run("umount", "-l", str(self.root))
        self.number += 1
        self.make()

    def make(self) -> None:
        image = self.folder / f"disk{self.number}.img"
        with open(image, "wb") as file:
            file.truncate(self.mebibytes << 20)
        run("mkfs.ext4", "-q", "-F", "-m", "0", "-N", str(self.inodes), str(image))
        run("mount", "-o", "loop", str(image), str(self.root))


def run(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@contextlib.contextmanager
def small_disk(folder: Path, mebibytes: int = 64, inodes: int = 4096) -> Iterator[Disk]:
    """Skips where this process may not mount one."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk image")
    disk = Disk(folder, mebibytes, inodes)
    disk.root.mkdir()
    try:
        disk.make()
    except AssertionError as error:
        pytest.skip(f"no loop device here: {error}")
    try:
        yield disk
    finally:
        disk.give_back()
        run("umount", "-l", str(disk.root), check=False)
