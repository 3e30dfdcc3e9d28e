"""Reads by mmap in a process of its own, because an error of such a read is SIGBUS."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys

_READER = """
import mmap, os, sys
for line in sys.stdin.buffer:
    path, offset, length = line.split()
    offset, length = int(offset), int(length)
    fd = os.open(bytes.fromhex(path.decode()), os.O_RDONLY)
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
        sys.stdout.write(mapped[offset:offset + length].hex() + "\\n")
        sys.stdout.flush()
    os.close(fd)
"""


class MappedReader:
    """Started when it is needed, and again after SIGBUS."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, path: bytes, offset: int, length: int) -> bytes | None:
        """The bytes; None for SIGBUS, or where open(2) already fails. The file must not be empty."""
        if self._process is None:
            command = [sys.executable, "-S", "-c", _READER]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{path.hex()} {offset} {length}\n".encode())
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if line:
            return bytes.fromhex(line.decode())
        code = self._process.wait()
        self.close()
        assert code in (-signal.SIGBUS, 1), code
        return None

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
            process.kill()
            process.wait()
