"""What answers may hold: memory in turn, and files of evicted objects no longer than they are sent."""

from __future__ import annotations

import asyncio
from typing import Any

from stoker.s3.evictions import Evictions
from stoker.s3.room import Room


async def test_room_is_given_in_turn_and_never_beyond_its_limit() -> None:
    room, order = Room(10), []

    async def take(name: str, count: int) -> Any:
        give = await room.take(count)
        order.append(name)
        return give

    first = await take("first", 6)
    large = asyncio.create_task(take("large", 8))
    small = asyncio.create_task(take("small", 2))
    await asyncio.sleep(0)
    assert order == ["first"], "the small one fits, and it is not its turn"
    first()
    first()
    assert [await large, await small]
    assert order == ["first", "large", "small"]


async def test_what_is_larger_than_all_room_comes_alone() -> None:
    room = Room(10)
    give = await room.take(100)
    other = asyncio.create_task(room.take(1))
    await asyncio.sleep(0)
    assert not other.done()
    give()
    (await other)()


async def test_who_gives_up_waiting_takes_no_room() -> None:
    room = Room(10)
    give = await room.take(10)
    waiting = [asyncio.create_task(room.take(10)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    give()
    (await asyncio.wait_for(waiting[1], 1))()
    (await asyncio.wait_for(room.take(10), 1))()


class FakeReads:
    """Answers that send from some files."""

    def __init__(self) -> None:
        self.held: set[tuple[bytes, int]] = set()
        self.on_let_go = lambda: None

    def holds(self, oid: bytes, incarnation: int) -> bool:
        return (oid, incarnation) in self.held


class FakeReader:
    def __init__(self) -> None:
        self.forgotten: list[tuple[bytes, int]] = []

    def forget(self, oid: bytes, incarnation: int) -> None:
        self.forgotten.append((oid, incarnation))


def test_an_eviction_is_answered_when_no_answer_uses_the_file() -> None:
    reader, reads, said = FakeReader(), FakeReads(), []
    evictions = Evictions(reader, reads, said.append)  # type: ignore[arg-type]
    reads.held = {(b"\x01", 7), (b"\x02", 3)}
    evictions.take({"op": "evicted", "seq": 1, "objects": [["01", 7], ["03", 1]]})
    evictions.take({"op": "evicted", "seq": 2, "objects": [["02", 4]]})
    assert reader.forgotten == [(b"\x01", 7), (b"\x03", 1), (b"\x02", 4)]
    assert said == [{"op": "evicted-ack", "seq": 2}], "another incarnation is another file"
    reads.held = {(b"\x02", 3)}
    reads.on_let_go()
    reads.on_let_go()
    assert said[1:] == [{"op": "evicted-ack", "seq": 1}]
