"""A link with a limit: two network namespaces of the bench's own, joined by a pair of interfaces.

A namespace lives as long as the processes in it, so nothing is left behind however the bench ends, and nothing of the
machine's own network is changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# 198.18.0.0/15 is set aside for measuring (RFC 2544).
SERVER, CLIENT = "198.18.0.1", "198.18.0.2"
_LIMIT = ["rate", "2gbit", "burst", "256kb", "limit", "4mb"]
_INTERFACE = "bench0"
_CLONE_NEWNET = 0x40000000
_READY_S = 5.0

_libc = ctypes.CDLL(None, use_errno=True)


class NotMeasuredError(Exception):
    """This machine lacks what a row needs."""


@dataclass(frozen=True)
class Link:
    """The processes that hold its two namespaces."""

    server: int
    client: int

    def listener(self) -> socket.socket:
        """A socket that listens at the server's end; it belongs there whoever holds it."""
        with _inside(self.server):
            return socket.create_server((SERVER, 0), backlog=256)

    @contextlib.contextmanager
    def at_client(self) -> Iterator[None]:
        """What this thread opens and starts meanwhile is at the client's end; mounts and unix sockets stay shared."""
        with _inside(self.client):
            yield


@contextlib.contextmanager
def limited_link() -> Iterator[Link]:
    """2 Gbit/s each way. Raises NotMeasuredError where only root could make it, or without iproute2."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if os.geteuid() or missing:
        raise NotMeasuredError(f"needs root and {', '.join(missing) or 'nothing else'}; apt install iproute2")
    with _namespace() as server, _namespace() as client:
        _run(server, "ip", "link", "add", _INTERFACE, "type", "veth", "peer", "name", _INTERFACE, "netns", str(client))
        for pid, address in ((server, SERVER), (client, CLIENT)):
            _run(pid, "ip", "address", "add", f"{address}/30", "dev", _INTERFACE)
            _run(pid, "ip", "link", "set", "lo", "up")
            _run(pid, "ip", "link", "set", _INTERFACE, "up")
            _run(pid, "tc", "qdisc", "add", "dev", _INTERFACE, "root", "tbf", *_LIMIT)
        yield Link(server, client)


@contextlib.contextmanager
def _namespace() -> Iterator[int]:
    """A process alone in a new network namespace; it dies with this one."""
    holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"])
    try:
        ours, end = os.readlink("/proc/self/ns/net"), time.monotonic() + _READY_S
        while Path(f"/proc/{holder.pid}/comm").read_text() != "sleep\n":
            if time.monotonic() > end or holder.poll() is not None:
                raise NotMeasuredError("network namespaces cannot be made here")
            time.sleep(0.005)
        if os.readlink(f"/proc/{holder.pid}/ns/net") == ours:
            raise NotMeasuredError("network namespaces cannot be made here")
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()


def _run(pid: int, *command: str) -> None:
    done = subprocess.run(["nsenter", "-t", str(pid), "-n", *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotMeasuredError(f"{' '.join(command)}: {done.stderr.strip()}")


@contextlib.contextmanager
def _inside(pid: int) -> Iterator[None]:
    home, there = os.open("/proc/thread-self/ns/net", os.O_RDONLY), os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        _setns(there)
        try:
            yield
        finally:
            _setns(home)
    finally:
        os.close(home)
        os.close(there)


def _setns(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
