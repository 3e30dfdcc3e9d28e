"""Amounts as people read them, the same in errors, events and tables. Pure."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: float) -> str:
    """`1.5 GiB`; whole bytes below 1 KiB."""
    unit = 0
    while abs(count) >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def files(count: int) -> str:
    """`1 file`, `4,000 files`."""
    return f"{count:,} file" if count == 1 else f"{count:,} files"
