"""What a process forked from the template becomes: daemon, worker, fetcher, or one that serves S3."""

from __future__ import annotations

import ctypes
import importlib
import select
import socket
from typing import Any

from stoker.ipc.channel import Channel
from stoker.node.alive import hold_role
from stoker.node.logs import configure_logging
from stoker.node.store import Entry

# Imported before any fork, so that a child is ready in milliseconds.
_WARM = ("stoker.node.daemon", "stoker.fuse.worker", "stoker.fetch.fetcher", "stoker.sources.s3", "stoker.s3.process")


_PR_SET_NAME = 15


def warm_up() -> None:
    """Import everything that a child needs. Importing opens nothing and starts no thread (a test asserts it)."""
    for module in _WARM:
        importlib.import_module(module)


def run_role(role: str, index: int, config: dict[str, Any], fd: int) -> None:
    """Be the process of this role and index until it ends."""
    _name_process(f"stk-{role}-{index}")
    hold_role(config["run_dir"], role, index)
    configure_logging(config["log_level"], f"{role}-{index}")
    channel = Channel(socket.socket(fileno=fd))
    entries = _receive(channel)
    if role == "daemon":
        from stoker.node.daemon import run_daemon

        run_daemon(config, channel, entries)
    elif role == "worker":
        _run_worker(index, config, channel, entries)
    elif role == "s3":
        _run_s3(index, config, channel, entries)
    else:
        _run_fetcher(index, config, entries)


def _name_process(name: str) -> None:
    """What `ps -o comm` and `top` show; the kernel keeps 15 bytes."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def _receive(channel: Channel) -> dict[str, Entry]:
    """Everything the supervisor keeps for this process, up to its `ready`."""
    entries: dict[str, Entry] = {}
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    while True:
        poll.poll()
        while (item := channel.recv()) is not None:
            message, fds = item
            if message["op"] == "ready":
                return entries
            if message["op"] == "keep":
                entry = Entry.received(message, fds)
                if (again := entries.get(entry.key)) is not None:
                    again.close()
                entries[entry.key] = entry
            elif message["op"] == "drop" and (dropped := entries.pop(message["key"], None)) is not None:
                dropped.close()


def _run_worker(index: int, config: dict[str, Any], channel: Channel, entries: dict[str, Entry]) -> None:
    from stoker.cache.boot import current_boot
    from stoker.fuse.parts import WorkerParts
    from stoker.fuse.worker import Worker
    from stoker.node.successor import ThirdHolder

    cache = entries["cache"]
    parts = WorkerParts(
        index=index,
        run_dir=config["run_dir"],
        workers=int(config["fuse_workers"]),
        tiers=tuple(cache.data["tiers"]),
        seeds=tuple(bytes.fromhex(seed) for seed in cache.data["seeds"]),
        boot=current_boot(),
        pool=entries[f"pool.{index}"].fds["pool"],
        presence=[cache.fds[f"presence.{j}"] for j in range(int(config["fetchers"]))],
        counters=entries[f"counters.worker.{index}"].fds["counters"],
        third=ThirdHolder(config, entries),
    )
    worker = Worker(parts, channel)
    for entry in entries.values():
        if entry.key.startswith("session."):
            worker.add_session(entry.key, entry.data, entry.fds)
    worker.replay()
    worker.run()


def _run_s3(index: int, config: dict[str, Any], channel: Channel, entries: dict[str, Entry]) -> None:
    from stoker.cache.boot import current_boot
    from stoker.s3.process import S3Parts, run

    cache = entries["cache"]
    parts = S3Parts(
        index=index,
        run_dir=config["run_dir"],
        state_dir=config["state_dir"],
        tiers=tuple(cache.data["tiers"]),
        seeds=tuple(bytes.fromhex(seed) for seed in cache.data["seeds"]),
        boot=current_boot(),
        presence=[cache.fds[f"presence.{j}"] for j in range(int(config["fetchers"]))],
        counters=entries[f"counters.s3.{index}"].fds["counters"],
        listening=entries["s3"].fds[f"listen.{index}"],
    )
    run(parts, channel, [(entry.key, entry.data) for entry in entries.values() if entry.key.startswith("session.")])


def _run_fetcher(index: int, config: dict[str, Any], entries: dict[str, Entry]) -> None:
    from stoker.fetch.fetcher import run

    fds = {
        "presence": entries["cache"].fds[f"presence.{index}"],
        "counters": entries[f"counters.fetcher.{index}"].fds["counters"],
    }
    run(index, config, fds)
