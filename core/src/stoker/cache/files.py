"""A descriptor that lives as long as somebody holds it.

Closing by number while another thread reads or writes would let the number be used again for another file, and the
bytes go to, or come from, the wrong one. CPython drops the last reference at once, so nothing stays open longer.
"""

from __future__ import annotations

import os


class OpenFile:
    """Owns `fd`. Keep a reference to this object, not to the number alone, across anything that may run in between."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)
