"""Tables of results inside documents, between marks: written, or compared with what was measured."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path


def filled(text: str, name: str, table: str) -> str:
    """The document with `table` between the marks of that name."""
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->\n"
    before, found, rest = text.partition(begin)
    _old, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"no marks {name}:begin and {name}:end")
    return f"{before}{begin}{table}{end}{after}"


def keep(document: Path, tables: Mapping[str, str], source: Path, *, check: bool, command: str) -> int:
    """Write the tables; with `check` only say whether they are there. An exit code."""
    text = wanted = document.read_text()
    for name, table in tables.items():
        wanted = filled(wanted, name, table)
    if not check:
        document.write_text(wanted)
    elif wanted != text:
        print(f"{document} does not show {source}; run: {command}", file=sys.stderr)
        return 1
    return 0
