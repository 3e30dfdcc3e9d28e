"""A fetcher's line to the daemon: sessions come in, credit is asked, evictions are answered.

It connects for ever; while the daemon is away the fetcher goes on with the credit it has.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Protocol

from stoker.api.reasons import Reason
from stoker.cache.credit import Grant, Place, to_rows
from stoker.cache.writer import CacheWriter
from stoker.fetch.session import SessionSpec
from stoker.ipc.channel import AsyncChannel, ChannelClosedError, Message

_FIRST_RETRY_S, _LAST_RETRY_S = 0.01, 1.0

ASK_S = 1.0
"""The owner answers in microseconds; when it is stopped, readers do not wait for it. A late grant is still taken."""


class Listener(Protocol):
    """The fetcher as its line sees it."""

    writer: CacheWriter | None

    def welcomed(self, message: Message) -> None:
        """The daemon is there. `message` has `tiers`, `seeds`, `boot`, `sessions`."""
        ...

    def session(self, spec: SessionSpec) -> None: ...

    def session_ended(self, slot: int, session_id: str) -> None: ...


class Link:
    """One per fetcher, in its loop."""

    def __init__(self, path: str, hello: Message, listener: Listener) -> None:
        self._path = path
        self._hello = hello
        self._listener = listener
        self._channel: AsyncChannel | None = None
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[Place, asyncio.Future[Grant]]] = {}
        self._handlers: dict[str, Callable[[Message], None]] = {
            "welcome": listener.welcomed,
            "session": lambda m: listener.session(SessionSpec.from_json(m["spec"])),
            "session-end": lambda m: listener.session_ended(int(m["slot"]), m["id"]),
            "granted": self._granted,
            "recall": self._recall,
            "try-again": self._try_again,
            "evict?": self._evict,
            "evicted": self._evicted,
        }

    async def run(self) -> None:
        """Until cancelled."""
        wait = _FIRST_RETRY_S
        while True:
            try:
                channel = await AsyncChannel.connect(self._path)
            except OSError:
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LAST_RETRY_S)
                continue
            wait = _FIRST_RETRY_S
            try:
                await self._serve(channel)
            except ChannelClosedError:
                await asyncio.sleep(wait)
            finally:
                self._lost(channel)

    async def ask(self, tier: int, account: int, nbytes: int, inodes: int, asker: int) -> Grant:
        """A wish for credit. Nothing when refused, or when the daemon is away."""
        if self._channel is None:
            return Grant()
        number = next(self._numbers)
        answer: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        self._asked[number] = (tier, account), answer
        wish = {"tier": tier, "account": account, "bytes": nbytes, "inodes": inodes, "asker": asker}
        self.send({"op": "credit", **wish, "seq": number})
        try:
            return await asyncio.wait_for(answer, ASK_S)
        except TimeoutError:
            return Grant()

    def send(self, message: Message) -> None:
        """Dropped while the daemon is away: all that is sent here is asked again or is a hint."""
        if self._channel is not None:
            self._channel.send(message)

    def tell(self, reason: Reason, text: str) -> None:
        """An event for people."""
        self.send({"op": "event", "reason": str(reason), "message": text})

    def tell_changed(self, session: str, path: str, text: str) -> None:
        """An object that a session shows is not what was listed."""
        self.send({"op": "changed", "session": session, "path": path, "message": text})

    def tell_fault(self, tier: int, reason: Reason, text: str) -> None:
        """The disk of a tier refused."""
        self.send({"op": "fault", "tier": tier, "reason": str(reason), "message": text})

    async def _serve(self, channel: AsyncChannel) -> None:
        writer = self._listener.writer
        credit = to_rows(writer.outstanding()) if writer is not None else []
        channel.send({**self._hello, "alive": writer is not None, "credit": credit})
        self._channel = channel
        while True:
            message, _fds = await channel.recv()
            handler = self._handlers.get(message["op"])
            if handler is not None:
                handler(message)

    def _lost(self, channel: AsyncChannel) -> None:
        """Grants on their way are lost with the daemon; its successor is told what is held here."""
        self._channel = None
        channel.close()
        for _, answer in self._asked.values():
            if not answer.done():
                answer.set_result(Grant())
        self._asked.clear()
        if self._listener.writer is not None:
            self._listener.writer.undoom_all()

    def _granted(self, message: Message) -> None:
        first, count = message["incarnations"]
        grant = Grant(int(message["bytes"]), int(message["inodes"]), int(first), int(count))
        place, answer = self._asked.pop(message["seq"], (None, None))
        if answer is not None and not answer.done():
            answer.set_result(grant)
        elif place is not None and self._listener.writer is not None:
            self._listener.writer.credit.add(place, grant)

    def _recall(self, message: Message) -> None:
        writer, tier = self._listener.writer, int(message["tier"])
        if writer is None:
            return
        for account in message["accounts"]:
            nbytes, inodes = writer.credit.give_back((tier, account))
            self.send({"op": "returned", "tier": tier, "account": account, "bytes": nbytes, "inodes": inodes})

    def _try_again(self, message: Message) -> None:
        if self._listener.writer is not None:
            self._listener.writer.try_again(int(message["tier"]))

    def _evict(self, message: Message) -> None:
        writer = self._listener.writer
        busy = writer.doom(map(bytes.fromhex, message["oids"])) if writer is not None else []
        self.send({"op": "busy", "seq": message["seq"], "oids": [oid.hex() for oid in busy]})

    def _evicted(self, message: Message) -> None:
        if self._listener.writer is not None:
            self._listener.writer.evicted(map(bytes.fromhex, message["oids"]))
