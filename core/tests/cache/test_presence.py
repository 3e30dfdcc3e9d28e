"""Readers in other processes while a writer keys, fills and frees slots: never another object's bits."""

from __future__ import annotations

import hashlib
import os
import time

import pytest

from stoker.cache.layout import run_bits
from stoker.cache.presence import ACTIVE, PresenceTable, create_table

CHUNKS = 6


def oid_of(number: int) -> bytes:
    return hashlib.blake2b(number.to_bytes(4, "big"), digest_size=20).digest()


def bits_of(number: int, chunk: int, incarnation: int) -> int:
    """What alone may ever be seen for this object: a pattern of its own."""
    return int.from_bytes(hashlib.blake2b(f"{number}:{chunk}:{incarnation}".encode(), digest_size=32).digest(), "big")


@pytest.fixture
def table():  # type: ignore[no-untyped-def]
    fd = create_table(16)
    table = PresenceTable(fd, 16)
    yield table
    table.close()
    os.close(fd)


def read_for(table: PresenceTable, seconds: float, objects: int) -> int:
    """Exit code of a reader: 0 all well, 1 nothing was ever seen, 2 bits of another object."""
    deadline, seen, number = time.monotonic() + seconds, 0, 0
    oids = [oid_of(n) for n in range(objects)]
    while time.monotonic() < deadline:
        for _ in range(500):
            number = (number + 1) % (objects * CHUNKS)
            sighting = table.look(oids[number % objects], number // objects)
            if sighting is not None:
                seen += sighting.present != 0
                if sighting.present & ~bits_of(number % objects, number // objects, sighting.incarnation):
                    return 2
    return 0 if seen else 1


def write_for(table: PresenceTable, seconds: float, objects: int) -> None:
    deadline, incarnation = time.monotonic() + seconds, 0
    held: list[int] = []
    while time.monotonic() < deadline:
        incarnation += 1
        number, chunk = incarnation % objects, incarnation % CHUNKS
        slot = table.take(oid_of(number), chunk, incarnation, 1 << 30, 1, 0)
        if slot is None:
            table.free(held.pop(0))
            continue
        held.append(slot)
        bits = bits_of(number, chunk, incarnation)
        for page in range(0, 256, 64):
            part = bits & run_bits(page, page + 64)
            for first in [n for n in range(page, page + 64) if part >> n & 1]:
                table.publish(slot, first, [incarnation])
        table.set_flags(slot, clear=ACTIVE)
        table.set_flags(slot, set_=ACTIVE)


def test_readers_never_see_another_objects_bits(table: PresenceTable) -> None:
    children = []
    for role in (write_for, read_for, read_for):
        pid = os.fork()
        if not pid:
            os._exit(role(table, 2.0, 9) or 0)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert codes == [0, 0, 0]


def test_a_table_forgets_nothing_when_its_fetcher_dies(table: PresenceTable) -> None:
    pid = os.fork()
    if not pid:
        slot = table.take(oid_of(1), 2, 77, 1 << 30, 5, 3)
        assert slot is not None
        table.reserve(slot, 0b1110)
        table.publish(slot, 1, [11, 12])
        os._exit(0)
    os.waitpid(pid, 0)
    (slot,) = table.occupied()
    left = table.snapshot(slot)
    assert left is not None
    assert (left.oid, left.chunk, left.incarnation, left.tier, left.owner) == (oid_of(1), 2, 77, 3, 5)
    assert (left.reserved, left.present, left.active) == (0b1110, 0b110, True)
    assert table.crcs(slot, 3)[1:] == [11, 12]


def test_settling_is_refused_after_a_slot_changed_hands(table: PresenceTable) -> None:
    slot = table.take(oid_of(1), 0, 1, 1 << 20, 1, 0)
    assert slot is not None
    table.publish(slot, 0, [1])
    before = table.snapshot(slot)
    assert before is not None
    table.free(slot)
    assert table.take(oid_of(1), 0, 2, 1 << 20, 1, 0) == slot
    assert table.settle(before, 1, 1) is None
    assert table.progress(slot) == (0, 0, 0)


def test_the_newest_incarnation_is_what_readers_see(table: PresenceTable) -> None:
    for incarnation in (3, 9, 5):
        slot = table.take(oid_of(1), 0, incarnation, 1 << 20, 1, 0)
        assert slot is not None
        table.publish(slot, incarnation, [0])
    seen = table.look(oid_of(1), 0)
    assert seen is not None
    assert (seen.incarnation, seen.present) == (9, 1 << 9)


def test_a_full_bucket_refuses(table: PresenceTable) -> None:
    slots = [table.take(oid_of(n), 0, 1, 1, 1, 0) for n in range(17)]
    assert slots.count(None) == 1
    table.clear()
    assert table.occupied() == []
