"""What tests of generations at run time ask a node, and do to a store."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from servers.node import Node
from servers.scripted_store import ScriptedStore

NONE = {"added": 0, "removed": 0, "modified": 0}


def refresh(node: Node, name: str = "data") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(node.ok("refresh", name, "--json"))
    return found


def known(node: Node, name: str = "data") -> dict[str, Any]:
    """A DataSet in status."""
    found = node.api("GET", "/v1/datasets")["dataSets"]
    return next(each for each in found if each["name"] == f"default/{name}")


def condition(node: Node, kind: str, name: str = "data") -> tuple[str, str, str]:
    """Status, reason and message."""
    for each in known(node, name)["conditions"]:
        if each["type"] == kind:
            return each["status"], each["reason"], each["message"]
    return "", "", ""


def evicted(node: Node) -> int:
    """Objects that went because no generation needs them."""
    return int(node.api("GET", "/v1/status")["node"]["cache"]["evicted"]["Generation"])


def manifests(node: Node, name: str = "data") -> set[str]:
    """Digests of the generations on disk."""
    folder = node.root / "state" / "manifests" / f"default.{name}"
    return {path.name.partition(".")[0] for path in folder.glob("*.manifest")}


def everything(root: Path) -> dict[str, bytes]:
    return {entry.name: (root / entry.name).read_bytes() for entry in sorted(os.scandir(root), key=lambda e: e.name)}


def written(node: Node) -> dict[str, float]:
    """When each file of the node's state was written, but its log, and what a listing under way has for itself."""
    found = (
        path
        for path in (node.root / "state").rglob("*")
        if path.is_file() and path.name[0] != "." and path.name != "node.log"
    )
    return {str(path): path.stat().st_mtime_ns for path in found}


def change(store: ScriptedStore) -> dict[str, bytes]:
    """One object is added, one is removed, one is modified, one stays; what there is now."""
    stays = store.objects[b"stays"].data
    store.put("modified", os.urandom(70_000))
    del store.objects[b"removed"]
    store.put("new", os.urandom(50_000))
    return {"modified": store.objects[b"modified"].data, "new": store.objects[b"new"].data, "stays": stays}


def answers(node: Node) -> bool:
    try:
        return bool(node.api("GET", "/v1/version"))
    except OSError:
        return False


def index_jobs(node: Node) -> list[int]:
    """Living index jobs of this node."""
    needle = f"STOKER_STATE_DIR={node.root / 'state'}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if b"stoker.jobs.index" in (entry / "cmdline").read_bytes() and needle in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
