"""What tests do with a mount of a scripted store: mount it, read it, break it for a while."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from servers.node import Node, data_set
from servers.scripted_store import Scenario, ScriptedStore

IMPATIENT = {"retries": 1, "requestTimeout": "1s"}
"""`spec.mount` of a reader who is soon told."""


def mount(node: Node, store: ScriptedStore, name: str = "data", **spec: Any) -> Path:
    """The whole store on a mount of its own DataSet; all such mounts share the cache."""
    return node.mount(data_set(name, store.source(), **spec), name)


def error_number(path: Path) -> int | None:
    """The errno of a read; None when it goes well."""
    try:
        path.read_bytes()
    except OSError as error:
        return error.errno
    return None


def cached_percent(path: Path) -> int:
    """Percent of a file that is in the cache."""
    return int(os.getxattr(path, "user.stoker.cached"))


def read_by_many(root: Path, keys: Iterable[str]) -> dict[str, bytes]:
    """Whole files, several at once."""
    with ThreadPoolExecutor(8) as pool:
        return dict(zip(keys, pool.map(lambda key: (root / key).read_bytes(), keys), strict=True))


def while_down(down: Sequence[object], fault: Scenario) -> Scenario:
    """The fault until `down` is emptied."""
    return lambda request, right: fault(request, right) if down else right
