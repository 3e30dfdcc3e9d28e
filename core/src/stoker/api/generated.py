"""Files that are generated from the code: written, or compared (`--check`) so that `make check` sees drift."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def write_or_check(path: str, text: str, arguments: Sequence[str], module: str) -> int:
    """Write `text` to `path`, or with `--check` say whether it stands there already: the exit code."""
    if "--check" not in arguments:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return 0
    with open(path, encoding="utf-8") as file:
        same = file.read() == text
    if not same:
        print(f"{path} is not what the code says; run: python -m {module}", file=sys.stderr)
    return 0 if same else 1
