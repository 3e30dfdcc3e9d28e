"""What is mounted, from /proc/self/mountinfo. Never stats a mountpoint: a dead mount can hang whoever asks it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

MOUNTINFO = "/proc/self/mountinfo"
_OCTAL = re.compile(rb"\\([0-7]{3})")
_TRIES = 3


@dataclass(frozen=True, slots=True)
class MountEntry:
    """One mount. The last entry of a mountpoint is the one on top."""

    mountpoint: str
    fstype: str
    source: str
    device: str
    """`major:minor`, the name of a FUSE connection in /sys/fs/fuse/connections is the minor."""


def mounts(path: str = MOUNTINFO) -> list[MountEntry]:
    """All mounts of this mount namespace, in the order they were made."""
    return list(parse_mountinfo(_read_steady(path)))


def parse_mountinfo(data: bytes) -> Iterator[MountEntry]:
    """`36 35 98:0 /root /mnt options [optional ...] - fstype source super-options`; space, tab, newline and backslash
    are written as three octal digits."""
    for line in data.splitlines():
        before, separator, after = line.partition(b" - ")
        fields, rest = before.split(b" "), after.split(b" ")
        if separator and len(fields) >= 6 and len(rest) >= 2:
            yield MountEntry(_text(fields[4]), _text(rest[0]), _text(rest[1]), _text(fields[2]))


def _text(field: bytes) -> str:
    return os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), field))


def _read_steady(path: str) -> bytes:
    """Two reads that agree: a mount made meanwhile can make one long read miss a line."""
    before = b""
    for _ in range(_TRIES):
        with open(path, "rb") as file:
            data = file.read()
        if data == before:
            break
        before = data
    return data
