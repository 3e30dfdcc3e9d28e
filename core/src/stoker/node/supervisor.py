"""The first process: keeps descriptors for the others and keeps the others running. Knows nothing of caches or mounts.

It holds a duplicate of every descriptor (so the kernel never sees the last holder of a clone die), forks roles from the
warm template, and starts each again when it dies. The daemon holds the same and starts a new supervisor when this one
dies, and so does a worker when both are dead; that one is handed everything again (`adopt`). docs/design/resume.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from stoker.fuse.hold import Holder
from stoker.ipc.channel import Channel, ChannelClosedError, listen
from stoker.node.alive import living, try_role
from stoker.node.forks import Template
from stoker.node.loop import Loop
from stoker.node.plainlog import PlainLog
from stoker.node.statefolder import forget_processes, leave_start_error, take_state
from stoker.node.store import Entry

Key = tuple[str, int]
DAEMON: Key = ("daemon", 0)

_STABLE_S = 2.0  # a process that lived this long is started again at once
_BACKOFF_S = (0.0, 0.0, 0.02, 0.1, 0.2, 0.5)  # a fork from the template is cheap: even a crash loop may be quick
_HOLD_AFTER_S = 0.3  # a worker is normally back in milliseconds; only a longer gap needs someone to answer interrupts
_STOP_GRACE_S = 5.0
_ADOPT_TIMEOUT_S = 10.0
_ALONE_TIMEOUT_S = 2.0  # a dead predecessor's lock is free in milliseconds


@dataclass(slots=True)
class Child:
    """One role and index: alive while `pidfd` is not -1; `channel` is None for an adopted one until it says hello."""

    pidfd: int = -1
    channel: Channel | None = None
    started: float = 0.0
    failures: int = 0
    died: float = 0.0
    asked: bool = False
    holder: Holder | None = None


@dataclass(slots=True)
class Supervisor:
    """One loop over the template, the children's pidfds and channels, and the socket where orphans say hello."""

    config: dict[str, Any]
    store: dict[str, Entry] = field(default_factory=dict)
    wanted: dict[str, int] = field(default_factory=lambda: {"daemon": 1})
    children: dict[Key, Child] = field(default_factory=dict)
    stopping: bool = False
    exit_code: int = 0
    _loop: Loop = field(default_factory=Loop)
    _handed: bool = False
    _guests: list[Channel] = field(default_factory=list)
    _template: Template = field(init=False)
    log: PlainLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = PlainLog("supervisor-0", self.config.get("log_level", "info"))
        self._template = Template(self._loop, self._on_forked, self._on_template_lost)

    def run(self) -> int:
        """Serve until the daemon says exit; the exit code of the node."""
        self._listen()
        while not (self.stopping and not any(child.pidfd >= 0 for child in self.children.values())):
            self._keep_running()
            self._loop.turn(self._timeout())
        forget_processes(self.config)
        return self.exit_code

    def alone(self) -> bool:
        """Take the lock of the role, to be held as long as this process lives; False when another supervisor has it."""
        return try_role(self.config["run_dir"], "supervisor", 0, _ALONE_TIMEOUT_S) is not None

    def adopt(self, channel: Channel) -> bool:
        """Take over from a dead supervisor: the daemon, or a worker, sends every entry it holds and what is to run.

        It may be dead by now: what it sent is in the socket all the same. False when that was not everything.
        """
        with contextlib.suppress(ChannelClosedError):
            while not self._handed and channel.wait(select.POLLIN, _ADOPT_TIMEOUT_S):
                while (item := channel.recv()) is not None:
                    self._on_message(channel, *item)
        if not self._handed:
            return False
        pidfd = living(self.config["run_dir"], *DAEMON)
        if pidfd is None:
            channel.close()
        else:
            self._attach(DAEMON, pidfd, channel)
        return True

    # --- the children

    def _keep_running(self) -> None:
        if not self.stopping:
            self._template.be_running()
        for key in [(role, index) for role, count in self.wanted.items() for index in range(count)]:
            child = self.children.setdefault(key, Child(died=time.monotonic()))
            if child.pidfd >= 0:
                continue
            if not self.stopping and not child.asked and time.monotonic() >= child.died + self._delay(child):
                self._start(key, child)
            elif child.holder is None and time.monotonic() > child.died + _HOLD_AFTER_S:
                self._hold(key, child)
            elif child.holder is not None:
                child.holder.end_interrupted()
        self._abort_orphans()

    @staticmethod
    def _delay(child: Child) -> float:
        return _BACKOFF_S[min(child.failures, len(_BACKOFF_S) - 1)]

    def _start(self, key: Key, child: Child) -> None:
        pidfd = living(self.config["run_dir"], *key)
        if pidfd is not None:  # it outlived the supervisor that started it, or the template died before it told of it
            self._attach(key, pidfd, None)
            if child.channel is not None:
                self._greet(key, child.channel)
            return
        if child.channel is not None:  # of a fork that was asked for and never was
            child.channel.close()
        ours, theirs = Channel.pair()
        if not self._template.fork(*key, self.config, theirs):
            ours.close()
            theirs.close()
            child.channel = None
            return
        child.asked, child.started, child.channel = True, time.monotonic(), ours

    def _greet(self, key: Key, channel: Channel) -> None:
        """Send a child everything that is for it, then `ready`."""
        self._send(channel, lambda: channel.send({"op": "everything"}))
        for entry in self.store.values():
            if (names := entry.names_for(*key)) is not None:
                self._send(channel, partial(entry.send, channel, names))
        self._send(channel, lambda: channel.send({"op": "ready"}))
        self._loop.watch(channel.fileno(), lambda: self._drain(channel))

    @staticmethod
    def _send(channel: Channel, send: Callable[[], None]) -> None:
        """Entries are small and the peer starts reading at once; a peer that is gone shows by its pidfd."""
        with contextlib.suppress(ChannelClosedError):
            send()
            while channel.pending and channel.wait(select.POLLOUT, 1.0):
                channel.flush()

    def _attach(self, key: Key, pidfd: int, channel: Channel | None) -> None:
        child = self.children.setdefault(key, Child())
        child.pidfd, child.asked = pidfd, False
        child.started = child.started or time.monotonic()
        self._end_hold(child)
        self._loop.watch(pidfd, lambda: self._on_death(key))
        if channel is not None:
            child.channel = channel
            self._loop.watch(channel.fileno(), lambda: self._drain(channel))

    def _on_death(self, key: Key) -> None:
        child = self.children[key]
        self._loop.forget(child.pidfd)
        os.close(child.pidfd)
        child.pidfd, child.died = -1, time.monotonic()
        child.failures = 0 if child.died - child.started > _STABLE_S else child.failures + 1
        if child.channel is not None:
            self._drain(child.channel)
            self._loop.forget(child.channel.fileno())
            child.channel.close()
            child.channel = None
        self.log.line("info" if self.stopping else "warning", "process ended", process=f"{key[0]}-{key[1]}")

    def _hold(self, key: Key, child: Child) -> None:
        """No worker serves these clones for a while: keep the requests for it, answer only interrupts."""
        role, index = key
        pool = self.store.get(f"pool.{index}")
        if role != "worker" or pool is None:
            return
        holder = child.holder = Holder(pool.fds["pool"])
        for entry in self.store.values():
            if (fd := entry.fds.get(f"clone.{index}")) is not None:
                holder.add(entry.data["slot"], fd, entry.data["made"])
        self._loop.watch(holder.fileno(), holder.on_readable)

    def _abort_orphans(self) -> None:
        """When no worker has served for a session's `orphanTimeout`, its readers fail rather than hang for ever."""
        workers = [child for (role, _), child in self.children.items() if role == "worker"]
        if not workers or any(child.pidfd >= 0 for child in workers):
            return
        waited = time.monotonic() - max(child.died for child in workers)
        for entry in [e for e in self.store.values() if waited > e.data.get("orphanTimeout", float("inf"))]:
            text = "no worker served the session; it is aborted"
            self.log.line("error", text, data_set=entry.data["spec"]["data_set"], reason="Timeout", key=entry.key)
            self._drop(entry.key)
            daemon = self.children.get(DAEMON)
            if daemon is not None and daemon.channel is not None:  # it holds the descriptors too
                self._send(daemon.channel, partial(daemon.channel.send, {"op": "orphaned", "key": entry.key}))

    def _end_hold(self, child: Child) -> None:
        if child.holder is not None:
            self._loop.forget(child.holder.fileno())
            child.holder.close()
            child.holder = None

    def _drain(self, channel: Channel) -> None:
        with contextlib.suppress(ChannelClosedError):
            while (item := channel.recv()) is not None:
                self._on_message(channel, *item)
            return
        self._loop.forget(channel.fileno())

    def _on_message(self, channel: Channel, message: dict[str, Any], fds: list[int]) -> None:
        match message["op"]:
            case "keep":
                self._keep(Entry.received(message, fds))
                self._send(channel, lambda: channel.send({"op": "kept", "key": message["key"]}))
            case "drop":
                self._drop(message["key"])
            case "want":
                self.wanted = {"daemon": 1, **message["roles"]}
            case "exit":
                leave_start_error(self.config, message["error"])
                self._stop(int(message["code"]))
            case "here?":
                self._send(channel, lambda: channel.send({"op": "here"}))
            case "handed":
                self._handed = True
            case "hello":
                self._on_hello(channel, (message["role"], int(message["index"])))

    def _keep(self, entry: Entry) -> None:
        if (old := self.store.get(entry.key)) is not None:
            old.close()
        self.store[entry.key] = entry
        for key, child in self.children.items():
            if key != DAEMON and child.channel is not None and (names := entry.names_for(*key)) is not None:
                channel = child.channel
                self._send(channel, partial(entry.send, channel, names))
            if child.holder is not None and (fd := entry.fds.get(f"clone.{key[1]}")) is not None:
                child.holder.add(entry.data["slot"], fd, entry.data["made"])

    def _drop(self, key: str) -> None:
        entry = self.store.pop(key, None)
        if entry is None:
            return
        for child_key, child in self.children.items():
            if child.holder is not None:
                child.holder.remove(entry.data.get("slot", -1), entry.data.get("made", 0))
            if child_key != DAEMON and child.channel is not None and entry.names_for(*child_key) is not None:
                channel = child.channel
                self._send(channel, partial(channel.send, {"op": "drop", "key": key}))
        entry.close()

    def _on_hello(self, channel: Channel, key: Key) -> None:
        """A child of a dead supervisor found this one: it becomes ours, and hears of every entry again."""
        if channel in self._guests:
            self._guests.remove(channel)
        child = self.children.setdefault(key, Child())
        if child.pidfd < 0 and (pidfd := living(self.config["run_dir"], *key)) is not None:
            self._attach(key, pidfd, None)
        child.channel = channel
        self._loop.forget(channel.fileno())
        self._greet(key, channel)

    def _stop(self, code: int) -> None:
        self.stopping, self.exit_code = True, code
        for key, child in self.children.items():
            if key != DAEMON and child.pidfd >= 0:
                signal.pidfd_send_signal(child.pidfd, signal.SIGTERM)
        signal.alarm(int(_STOP_GRACE_S))

    def kill_all(self) -> None:
        """The grace period is over."""
        for child in self.children.values():
            if child.pidfd >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM or Ctrl-C: the daemon unmounts, then says exit."""
        daemon = self.children.get(DAEMON)
        if daemon is not None and daemon.pidfd >= 0:
            signal.pidfd_send_signal(daemon.pidfd, signal.SIGTERM)
        else:
            self._stop(1)

    # --- the template and the socket for orphans

    def _on_forked(self, role: str, index: int, pidfd: int) -> None:
        """The child waits for `ready`: nobody holds its requests any more when it begins to answer them."""
        key = (role, index)
        self._attach(key, pidfd, None)
        if (channel := self.children[key].channel) is not None:
            self._greet(key, channel)

    def _on_template_lost(self) -> None:
        for child in self.children.values():
            if child.asked and child.pidfd < 0:
                child.asked, child.died, child.failures = False, time.monotonic(), child.failures + 1

    def _listen(self) -> None:
        sock = listen(os.path.join(self.config["run_dir"], "keeper.sock"))
        self._loop.watch(sock.fileno(), lambda: self._accept(sock))

    def _accept(self, sock: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            guest = Channel(sock.accept()[0])
            self._guests.append(guest)
            self._loop.watch(guest.fileno(), lambda: self._drain(guest))

    def _timeout(self) -> float:
        waiting = not self._template.running or any(child.pidfd < 0 for child in self.children.values())
        return 0.02 if waiting else 5.0


def main(arguments: list[str]) -> int:
    """`supervisor CONFIG_JSON [ADOPT_FD]`: run the node until it is told to exit."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # of its children too: clones, files, sockets
    supervisor = Supervisor(json.loads(arguments[0]))
    sys.excepthook = supervisor.log.failed
    signal.signal(signal.SIGTERM, lambda *_: supervisor.terminate())
    signal.signal(signal.SIGINT, lambda *_: supervisor.terminate())
    signal.signal(signal.SIGALRM, lambda *_: supervisor.kill_all())
    if len(arguments) > 1:
        channel = Channel(socket.socket(fileno=int(arguments[1])))
        if not supervisor.alone() or not supervisor.adopt(channel):
            return 1
    else:
        supervisor.store["lock"] = Entry("lock", {"lock": take_state(supervisor.config)})
        supervisor.alone()
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
