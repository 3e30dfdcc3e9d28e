"""What a fetcher meets: full and failing disks, credit that runs out, an owner that is away, and its own death."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from rigs.cache import OWNER, CacheRig, Clock, Thing
from stoker.api.reasons import Reason
from stoker.cache.amount import Amount
from stoker.cache.credit import REFUSED_S, Credit, Grant
from stoker.cache.fill import Written
from stoker.cache.layout import CHUNK, PAGE, owner_id
from stoker.cache.ledger import Limits
from stoker.cache.writer import FULL_RETRY_S

MIB = 1 << 20


@pytest.fixture
def rig(tmp_path: Path):  # type: ignore[no-untyped-def]
    rig = CacheRig([str(tmp_path / "cache")], Limits(64 * MIB, reserve_free=0), fetchers=2)
    yield rig
    rig.close()


@pytest.fixture
def small_disk(tmp_path: Path):  # type: ignore[no-untyped-def]
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=60", "tmpfs", str(folder)])
    if made.returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_disk_that_fills_up_under_us_is_read_through_and_tried_again(small_disk: Path) -> None:
    rig = CacheRig([f"{small_disk}/cache"], Limits(64 * MIB, reserve_free=0))
    thing, other, third = Thing("a", 40 * PAGE), Thing("b", 40 * PAGE), Thing("c", 4 * PAGE)
    assert await rig.load(thing)
    rig.commit()
    writer = rig.writer_of(other)
    fill = writer.begin(other.oid, other.size, OWNER)
    assert fill is not None
    assert await fill.reserve(0, 40)
    hog = open_and_fill(f"{small_disk}/neighbour")  # takes what was granted to us
    with pytest.raises(OSError, match="No space"):
        fill.write(0, thing.span(0, 40))
    fill.close()
    assert [event[1] for event in rig.events] == [Reason.CacheFull]
    assert not await rig.load(third)
    assert {event[1] for event in rig.events} == {Reason.CacheFull}
    assert rig.read(thing)
    assert not rig.read(other, 0, 1)
    os.unlink(hog)
    rig.commit()
    rig.clock.now += FULL_RETRY_S + 1
    assert await rig.load(third)
    assert await rig.load(other)
    assert rig.read(third)
    assert rig.read(other)
    rig.close()


def use_all_inodes(folder: Path) -> None:
    for number in range(80):
        (folder / f"inode-{number}").touch()


async def test_no_inodes_left_is_read_through(small_disk: Path) -> None:
    rig = CacheRig([f"{small_disk}/cache"], Limits(64 * MIB, reserve_free=0))
    with pytest.raises(OSError, match="No space"):
        use_all_inodes(small_disk)
    assert not await rig.load(Thing("a", PAGE))
    rig.close()


def open_and_fill(path: str) -> str:
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return path


async def test_a_failed_fetch_costs_nothing(rig: CacheRig) -> None:
    thing = Thing("gone", CHUNK + PAGE)
    writer = rig.writer_of(thing)
    place = 0, owner_id(OWNER)
    await writer.credit.ensure(place, PAGE, 1)
    before = writer.credit.unspent(place)
    fill = writer.begin(thing.oid, thing.size, OWNER)
    assert fill is not None
    assert await fill.reserve(0, 257)
    fill.close()
    assert writer.credit.unspent(place) == before
    rig.commit()
    assert rig.owner.tiers[0].ledger.indexed == Amount()


async def test_the_books_of_both_sides_agree(rig: CacheRig) -> None:
    for number in range(40):
        thing = Thing(f"t{number}", number * 5000 + 1)
        await rig.fill(thing, 0, 1 + number % max(thing.pages, 1))
        if number % 3 == 0:
            rig.commit()
        if number % 7 == 0:
            await rig.load(thing)
    for _ in range(2):
        assert [rig.told(0), rig.told(1)] == [rig.kept(0), rig.kept(1)]
        rig.commit()


async def test_pages_are_settled_once_even_if_they_are_drained_twice(rig: CacheRig) -> None:
    thing = Thing("t", 3 * PAGE)
    await rig.load(thing)
    number = rig.writers.index(rig.writer_of(thing))
    rig.do([*rig.owner.drain(), *rig.owner.drain(), *rig.owner.drain_dead(number)])
    assert rig.told(number) == rig.kept(number)


async def test_a_new_owner_takes_over_the_books(rig: CacheRig) -> None:
    things = [Thing(f"t{number}", 3 * PAGE) for number in range(30)]
    for thing in things[:15]:
        await rig.load(thing)
    rig.commit()
    for thing in things[15:]:
        await rig.load(thing)
    rig.kill_owner()
    for thing in things:
        assert rig.read(thing, reader=rig.new_reader())
    rig.open_owner()
    rig.commit()
    assert rig.owner.counts([(thing.oid, thing.size) for thing in things]) == (30, 30 * 3 * PAGE)
    assert [rig.told(0), rig.told(1)] == [rig.kept(0), rig.kept(1)]


async def test_what_a_killed_fetcher_left_is_kept_and_counted(rig: CacheRig) -> None:
    thing = Thing("big", CHUNK)
    number = rig.writers.index(rig.writer_of(thing))
    fill = rig.writer_of(thing).begin(thing.oid, thing.size, OWNER)
    assert fill is not None
    assert await fill.reserve(0, 100)
    fill.write(0, thing.span(0, 60))
    fill.put(60, [thing.span(60, 70)])  # killed before it could publish these
    rig.replace_writer(number)
    assert rig.read(thing, 0, 60)
    assert not rig.read(thing, 60, 61)
    assert rig.owner.tiers[0].ledger.indexed == Amount(100 * PAGE + 4096, 1)
    assert rig.kept(number) == {}
    assert await rig.load(thing)
    assert rig.read(thing)


def remove_objects(rig: CacheRig) -> None:
    for path in Path(rig.configs[0].path, "objects").rglob("*.*"):
        path.unlink()


async def test_pages_of_a_replaced_file_are_not_published(rig: CacheRig) -> None:
    """A page that was put into a file which is gone must never be promised of the new one."""
    thing = Thing("t", 10 * PAGE)
    fill = rig.writer_of(thing).begin(thing.oid, thing.size, OWNER)
    assert fill is not None
    assert await fill.reserve(0, 5)
    late = fill.put(0, [thing.span(0, 5)])
    assert await fill.reserve(5, 10)
    fill.write(5, thing.span(5, 10))
    remove_objects(rig)
    assert fill.missing(5, 10) == [(5, 10)]
    assert await fill.reserve(0, 10)
    assert not fill.publish(0, late)
    assert rig.new_reader().find(thing.oid, thing.size, 0, 1) is None
    fill.write(0, thing.span(0, 10))
    fill.close()
    assert rig.read(thing, reader=rig.new_reader())
    rig.commit()
    assert rig.read(thing, reader=rig.new_reader())


async def test_publishing_what_was_not_reserved_is_refused(rig: CacheRig) -> None:
    thing = Thing("t", 10 * PAGE)
    fill = rig.writer_of(thing).begin(thing.oid, thing.size, OWNER)
    assert fill is not None
    assert await fill.reserve(0, 2)
    assert fill.incarnation is not None
    assert not fill.publish(2, Written(fill.incarnation, [0]))
    assert not fill.publish(1, Written(fill.incarnation, [0, 0]))
    assert fill.missing(0, 3) == [(0, 3)]
    fill.close()


async def test_a_removed_file_under_two_who_fill_it_is_read_through_and_then_whole(rig: CacheRig) -> None:
    thing = Thing("t", 10 * PAGE)
    one, two = (rig.writer_of(thing).begin(thing.oid, thing.size, OWNER) for _ in range(2))
    assert one is two is not None
    assert await one.reserve(0, 4)
    assert await two.reserve(4, 8)
    one.write(0, thing.span(0, 2))
    remove_objects(rig)
    assert one.missing(0, 2) == [(0, 2)]
    with pytest.raises(OSError, match="gone"):
        two.write(4, thing.span(4, 6))
    assert await one.reserve(0, 2)
    one.write(0, thing.span(0, 2))
    with pytest.raises(OSError, match="replaced"):
        two.write(6, thing.span(6, 8))
    one.close()
    two.close()
    assert rig.events == []
    rig.commit()
    assert await rig.load(thing)
    assert rig.read(thing, reader=rig.new_reader())


async def test_a_full_table_is_read_through_until_the_next_commit(tmp_path: Path) -> None:
    rig = CacheRig([str(tmp_path / "cache")], Limits(64 * MIB, reserve_free=0), slots=16)
    things = [Thing(f"t{number}", PAGE) for number in range(17)]
    assert [await rig.load(thing) for thing in things].count(False) == 1
    rig.commit()
    assert await rig.load(things[16])
    assert all(rig.read(thing) for thing in things)
    rig.close()


async def test_readers_are_asked_to_tell_when_they_reach_the_trigger(rig: CacheRig) -> None:
    thing = Thing("stream", 30 * PAGE)
    fill = rig.writer_of(thing).begin(thing.oid, thing.size, OWNER)
    assert fill is not None
    assert await fill.reserve(0, 20)
    fill.write(0, thing.span(0, 5))
    assert rig.read(thing, 0, 5)
    fill.set_trigger(12)
    fill.write(5, thing.span(5, 20))
    hits = [rig.reader.find(thing.oid, thing.size, first, first + 4) for first in range(4, 20, 4)]
    assert [hit.trigger if hit else "miss" for hit in hits] == [None, None, 12, None]
    fill.close()


async def test_credit_is_asked_for_once_by_all_who_wait() -> None:
    asked = []

    async def ask(tier: int, account: int, nbytes: int, inodes: int, asker: int) -> Grant:
        asked.append((nbytes, inodes))
        await asyncio.sleep(0)
        return Grant(nbytes, inodes, 100 * len(asked), inodes)

    credit = Credit(ask)
    assert all(await asyncio.gather(*(credit.ensure((0, 7), PAGE, 1) for _ in range(50))))
    assert len(asked) == 1
    assert credit.spend((0, 7), PAGE, 1)
    assert [credit.incarnation((0, 7)), credit.incarnation((0, 7))] == [100, 101]


async def test_all_who_want_much_at_once_get_it() -> None:
    """Whoever finds that another has spent what was granted asks again."""

    async def ask(tier: int, account: int, nbytes: int, inodes: int, asker: int) -> Grant:
        await asyncio.sleep(0)
        return Grant(nbytes, inodes, 1, inodes)

    credit = Credit(ask)

    async def take() -> bool:
        return await credit.ensure((0, 7), 8 * MIB, 1) and credit.spend((0, 7), 8 * MIB, 1)

    assert all(await asyncio.gather(*(take() for _ in range(20))))


async def test_a_refusal_is_not_asked_again_at_once() -> None:
    asked, clock = [], Clock()

    async def ask(tier: int, account: int, nbytes: int, inodes: int, asker: int) -> Grant:
        asked.append(nbytes)
        return Grant()

    credit = Credit(ask, clock)
    for _ in range(5):
        assert not await credit.ensure((0, 7), PAGE, 1)
    assert len(asked) == 1
    clock.now += REFUSED_S
    assert not await credit.ensure((0, 7), PAGE, 1)
    assert len(asked) == 2


async def test_idle_credit_goes_to_whoever_needs_it(tmp_path: Path) -> None:
    rig = CacheRig([str(tmp_path / "cache")], Limits(2 * MIB, reserve_free=0), fetchers=2)
    number = 0
    for fetcher in (0, 1, 0, 1):
        while True:
            number += 1
            thing = Thing(f"t{number}", 8 * PAGE)
            if int.from_bytes(thing.oid[:4], "big") % 2 == fetcher:
                break
        rig.clock.now += 1
        assert await rig.load(thing)
    rig.close()


async def test_a_limit_of_a_few_pages_still_turns_over(tmp_path: Path) -> None:
    rig = CacheRig([str(tmp_path / "cache")], Limits(320 << 10, reserve_free=0))
    stored = 0
    for number in range(30):
        rig.clock.now += 60
        stored += await rig.load(Thing(f"t{number}", PAGE))
        rig.commit()
        assert rig.disk_use()[0] <= rig.owner.usage()[0].used_bytes <= 320 << 10
    assert stored > 20
    rig.close()
