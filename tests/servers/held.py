"""What tests of limits ask a node, and read of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from servers.node import Node

SIZE = 64 << 10
"""Bytes of each file."""


def read_all(root: Path) -> None:
    """Every file below a folder, so that the next read of it reaches Stoker again."""
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        assert len(path.read_bytes()) == SIZE
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def row(node: Node, name: str) -> dict[str, Any]:
    """A DataSet in `stoker status`."""
    rows = json.loads(node.ok("status", "--json"))["dataSets"]
    return next(each for each in rows if each["name"] == f"default/{name}")
