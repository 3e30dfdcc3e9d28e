"""What this process has open of evicted objects: dropped at once, and told to the daemon when no answer uses it."""

from __future__ import annotations

from collections.abc import Callable

from stoker.cache.reader import CacheReader
from stoker.ipc.channel import Message
from stoker.s3.reads import Reads


class Evictions:
    """The room of a file is free when nobody has it open. A client that takes nothing is cut off before long."""

    def __init__(self, reader: CacheReader, reads: Reads, say: Callable[[Message], None]) -> None:
        self._reader, self._reads, self._say = reader, reads, say
        self._waiting: dict[int, list[tuple[bytes, int]]] = {}
        reads.on_let_go = self._look

    def take(self, message: Message) -> None:
        gone = [(bytes.fromhex(oid), int(incarnation)) for oid, incarnation in message["objects"]]
        for oid, incarnation in gone:
            self._reader.forget(oid, incarnation)
        self._waiting[message["seq"]] = gone
        self._look()

    def forget(self) -> None:
        """The daemon that asked is gone."""
        self._waiting.clear()

    def _look(self) -> None:
        for seq, gone in list(self._waiting.items()):
            left = [(oid, incarnation) for oid, incarnation in gone if self._reads.holds(oid, incarnation)]
            if left:
                self._waiting[seq] = left
            else:
                del self._waiting[seq]
                self._say({"op": "evicted-ack", "seq": seq})
