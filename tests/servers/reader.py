"""A reader in a process of its own: `reader.py STATE ROOT EXPECTED WAY SEED`, nothing but the standard library.

It reads the files of one mount for ever and compares each byte with EXPECTED (JSON: path -> [size, sha256]). STATE is a
page that it shares with the test: how often it went round, whether to stop, what it does now. The first thing that goes
wrong is its last line of output and ends it with 1; a SIGBUS ends it too, and STATE says where.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import random
import stat
import struct
import sys
from collections.abc import Callable

_HEAD = struct.Struct("<QQI")  # rounds, stop, length of the text
_BLOCK = 1 << 17


class State:
    """The page shared with the test. What it says of a dead reader is what that did last."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 4096)

    @property
    def rounds(self) -> int:
        return int(_HEAD.unpack_from(self._map)[0])

    @property
    def doing(self) -> str:
        length = _HEAD.unpack_from(self._map)[2]
        return self._map[_HEAD.size : _HEAD.size + length].decode(errors="replace")

    @property
    def stopped(self) -> bool:
        return bool(_HEAD.unpack_from(self._map)[1])

    def stop(self) -> None:
        self._map[8:16] = (1).to_bytes(8, "little")

    def went_round(self) -> None:
        self._map[0:8] = (self.rounds + 1).to_bytes(8, "little")

    def does(self, operation: str, path: str, offset: int = 0) -> None:
        text = f"{operation} {path} at {offset}".encode()[:4000]
        self._map[16 : _HEAD.size + len(text)] = struct.pack("<I", len(text)) + text


class Reader:
    """One way of reading per method; each reads one thing whole and compares it."""

    def __init__(self, state: State, root: str, expected: dict[str, tuple[int, str]], seed: int) -> None:
        self._state = state
        self._root = root
        self._expected = expected
        self._random = random.Random(seed)
        self._paths = sorted(expected)
        self._small = [path for path in self._paths if path.startswith("small/")]
        self._medium = [path for path in self._paths if path.startswith("medium/")]

    def small(self) -> None:
        """A small file, by any call."""
        self._any_way(self._random.choice(self._small))

    def medium(self) -> None:
        """A file of some chunks, by any call."""
        self._any_way(self._random.choice(self._medium))

    def large(self) -> None:
        """The large file, by any call."""
        self._any_way("large")

    def herd(self) -> None:
        """A few files that all readers open at once, again and again."""
        path = self._random.choice(self._small[:4] + self._medium[:1])
        size, digest = self._expected[path]
        fds = [self._open(path) for _ in range(self._random.randint(1, 4))]
        for fd in fds:
            if size < _BLOCK:
                self._compare(path, "pread", self._pread(fd, path, 0, size), digest)
            else:
                self._pread(fd, path, self._random.randrange(size), 4096)
        for fd in fds:
            self._close(fd, path)

    def becomes_complete(self) -> None:
        """Half of a file by one open; the rest while others open it; then again by opens of before and after."""
        path = self._random.choice(self._medium)
        size, digest = self._expected[path]
        first = self._open(path)
        half = self._pread(first, path, 0, size // 2)
        second = self._open(path)
        rest = self._pread(second, path, size // 2, size - size // 2)
        self._compare(path, "pread in halves", half + rest, digest)
        third = self._open(path)
        self._close(first, path)
        self._close(second, path)
        self._compare(path, "pread after others closed", self._pread(third, path, 0, size), digest)
        self._close(third, path)
        self._any_way(path)

    def listing(self) -> None:
        """Names and sizes of everything; a name that is not there; what the kernel asks again each time."""
        found: dict[str, int] = {}
        for folder in ("", "small", "medium"):
            self._state.does("list", folder)
            with os.scandir(os.path.join(self._root, folder)) as entries:
                for entry in entries:
                    if entry.is_file():
                        found[os.path.join(folder, entry.name)] = entry.stat().st_size
        wanted = {path: size for path, (size, _digest) in self._expected.items()}
        if found != wanted:
            wrong = sorted(set(found.items()) ^ set(wanted.items()))[:5]
            raise ValueError(f"the listing has {len(found)} files for {len(wanted)}; {wrong}")
        path = self._random.choice(self._paths)
        self._state.does("stat", path)
        if not stat.S_ISREG(os.stat(self._at(path)).st_mode):
            raise ValueError("not a regular file")
        self._state.does("getxattr", path)
        os.getxattr(self._at(path), "user.stoker.etag")
        self._state.does("statfs", "")
        os.statvfs(self._root)
        missing = f"small/missing-{self._random.random()}"
        self._state.does("stat", missing)
        if os.path.exists(self._at(missing)):
            raise ValueError("a name that nobody made")

    def _any_way(self, path: str) -> None:
        ways: list[Callable[[int, str, int, str], None]] = [self._by_pread, self._by_mmap, self._by_splice]
        size, digest = self._expected[path]
        fd = self._open(path)
        self._random.choice(ways)(fd, path, size, digest)
        self._state.does("fadvise", path)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # the next reader asks the server, not the kernel
        self._close(fd, path)

    def _by_pread(self, fd: int, path: str, size: int, digest: str) -> None:
        sha = hashlib.sha256()
        for offset in range(0, size, _BLOCK):
            sha.update(self._pread(fd, path, offset, min(_BLOCK, size - offset)))
        self._is(path, "pread", sha.hexdigest(), digest)

    def _by_mmap(self, fd: int, path: str, size: int, digest: str) -> None:
        sha = hashlib.sha256()
        with mmap.mmap(fd, size, prot=mmap.PROT_READ) as mapped:
            for offset in range(0, size, _BLOCK):
                self._state.does("mmap", path, offset)
                sha.update(mapped[offset : offset + _BLOCK])
        self._is(path, "mmap", sha.hexdigest(), digest)

    def _by_splice(self, fd: int, path: str, size: int, digest: str) -> None:
        sha = hashlib.sha256()
        out, into = os.pipe()
        offset = 0
        while offset < size:
            self._state.does("splice", path, offset)
            count = os.splice(fd, into, min(1 << 16, size - offset), offset_src=offset)
            if not count:
                raise ValueError("splice came to an early end")
            offset += count
            while count:
                data = os.read(out, count)
                sha.update(data)
                count -= len(data)
        os.close(out)
        os.close(into)
        self._is(path, "splice", sha.hexdigest(), digest)

    def _open(self, path: str) -> int:
        self._state.does("open", path)
        return os.open(self._at(path), os.O_RDONLY)

    def _close(self, fd: int, path: str) -> None:
        self._state.does("close", path)
        os.close(fd)

    def _pread(self, fd: int, path: str, offset: int, length: int) -> bytes:
        parts = []
        while length:
            self._state.does("pread", path, offset)
            data = os.pread(fd, length, offset)
            parts.append(data)
            offset, length = offset + len(data), length - len(data)
            if not data:
                if offset >= self._expected[path][0]:
                    break
                raise ValueError("pread came to an early end")
        return b"".join(parts)

    def _compare(self, path: str, how: str, data: bytes, digest: str) -> None:
        self._is(path, how, hashlib.sha256(data).hexdigest(), digest)

    def _is(self, path: str, how: str, digest: str, wanted: str) -> None:
        if digest != wanted:
            raise ValueError(f"wrong bytes by {how} of {path}: {digest} for {wanted}")

    def _at(self, path: str) -> str:
        return os.path.join(self._root, path)


WAYS: dict[str, Callable[[Reader], None]] = {
    "small": Reader.small,
    "medium": Reader.medium,
    "large": Reader.large,
    "herd": Reader.herd,
    "complete": Reader.becomes_complete,
    "list": Reader.listing,
}


def main(state_file: str, root: str, expected: str, way: str, seed: str) -> int:
    state = State(state_file)
    with open(expected, encoding="utf-8") as file:
        reader = Reader(state, root, json.load(file), int(seed))
    while not state.stopped:
        try:
            WAYS[way](reader)
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, str(error.errno))
            print(f"{name} ({error.strerror}) while it did: {state.doing}", flush=True)
            return 1
        except ValueError as error:
            print(f"{error}, while it did: {state.doing}", flush=True)
            return 1
        state.went_round()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
