"""Which processes of a node a test can kill, and whether all are there again."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from servers.node import Node, alive, processes_of, wait_for


def supervisor_of(node: Node) -> list[int]:
    """The one that has the lock of its role."""
    return node.pids("supervisor")


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


def choose(node: Node, victims: Sequence[str], chance: random.Random) -> list[int]:
    """A living process of each role named; `workers` are all of them."""
    pids: list[int] = []
    for victim in victims:
        if victim == "workers":
            pids += node.pids("worker")
        elif found := VICTIMS[victim](node):
            pids.append(chance.choice(found))
    return pids


def kill_at_once(pids: Iterable[int]) -> int:
    """SIGKILL in the same moment, and wait until all are dead; how many there were."""
    killed = [pid for pid in pids if sent(pid, signal.SIGKILL)]
    wait_for(lambda: not any(alive(pid) for pid in killed))
    return len(killed)


def sent(pid: int, number: int) -> bool:
    """Whether the process was there to get the signal."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def whole(node: Node, workers: int = 2) -> bool:
    """Every process is there and serves, and the daemon answers."""
    wanted = {"keeper.sock", "control.sock", "fetch-0.sock", *(f"fuse-{index}.sock" for index in range(workers))}
    if not wanted <= sockets(node):
        return False
    try:
        node.api("GET", "/v1/version")
    except (OSError, ValueError):
        return False
    return bool(supervisor_of(node)) and len(node.pids("worker")) == workers and bool(node.pids("fetcher"))


def holders(node: Node) -> set[int]:
    """The processes that hold every descriptor: one of them must live, or the kernel ends the mounts."""
    return {pid for role in ("supervisor", "daemon", "worker") for pid in node.pids(role)}


def sockets(node: Node) -> set[str]:
    """The names of those that a living process has bound."""
    folder = f"{node.root}/run/"
    paths = (line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines())
    return {path.removeprefix(folder) for path in paths if path.startswith(folder)}
