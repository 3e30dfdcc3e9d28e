"""Which processes of a node a test can kill, and whether all are there again."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from servers.node import Node, processes_of


def supervisor_of(node: Node) -> list[int]:
    """The supervisor has no lock of its own: it is found by its command line."""
    return [pid for pid in processes_of(node.root) if b"stoker.node.supervisor" in cmdline(pid)]


def template_of(node: Node) -> list[int]:
    """The template's children have its command line too."""
    roles = {pid for role in ("daemon", "worker", "fetcher") for pid in node.pids(role)}
    return [pid for pid in processes_of(node.root) if b"stoker.node.template" in cmdline(pid) and pid not in roles]


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


VICTIMS: dict[str, Callable[[Node], list[int]]] = {
    "worker": lambda node: node.pids("worker"),
    "fetcher": lambda node: node.pids("fetcher"),
    "daemon": lambda node: node.pids("daemon"),
    "template": template_of,
    "supervisor": supervisor_of,
}


def kill_at_once(node: Node, victims: Sequence[str], chance: random.Random) -> int:
    """SIGKILL one process of each role named (`workers`: all of them) in the same moment; how many there were."""
    pids: list[int] = []
    for victim in victims:
        if victim == "workers":
            pids += node.pids("worker")
        elif found := VICTIMS[victim](node):
            pids.append(chance.choice(found))
    return sum(sent(pid, signal.SIGKILL) for pid in pids)


def sent(pid: int, number: int) -> bool:
    """Whether the process was there to get the signal."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def whole(node: Node, workers: int = 2) -> bool:
    """Every process is there, and the daemon answers."""
    try:
        node.api("GET", "/v1/version")
    except (OSError, ValueError):
        return False
    return bool(supervisor_of(node)) and len(node.pids("worker")) == workers and bool(node.pids("fetcher"))
