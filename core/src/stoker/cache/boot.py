"""Which boot of the machine this is: what an earlier boot wrote may not have reached the disk."""

from __future__ import annotations

import hashlib
import os
import uuid

BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"


def current_boot() -> bytes:
    """16 bytes. `STOKER_BOOT_ID` (any text) takes the place of the kernel's, so that a reboot can be rehearsed."""
    given = os.environ.get("STOKER_BOOT_ID", "")
    if given:
        return hashlib.blake2b(given.encode(), digest_size=16, person=b"stoker.boot.1").digest()
    with open(BOOT_ID_FILE) as file:
        return uuid.UUID(file.read().strip()).bytes
