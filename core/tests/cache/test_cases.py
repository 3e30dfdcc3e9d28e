"""Faults that users of other caches met (each test names its case), and what must hold for a reader."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from rigs.cache import OWNER, CacheRig, Thing
from stoker.cache.layout import CHUNK, PAGE, object_id
from stoker.cache.ledger import Limits
from stoker.cache.reader import BadPage

MIB = 1 << 20


@pytest.fixture
def rig(tmp_path: Path):  # type: ignore[no-untyped-def]
    rig = CacheRig([str(tmp_path / "cache")], Limits(256 * MIB, reserve_free=0))
    yield rig
    rig.close()


def overwrite(path: str, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def replaced(thing: Thing, size: int) -> Thing:
    """The same key, written again."""
    other = Thing(f"{thing.name}-v2", size)
    other.oid = object_id("s3://store/bucket", thing.name.encode(), "etag-2", size)
    return other


@pytest.mark.parametrize("size", [20 * MIB, 21 * MIB])
async def test_ca01_pages_of_two_versions_are_never_mixed(rig: CacheRig, size: int) -> None:
    old = Thing("model", 20 * MIB)
    new = replaced(old, size)
    assert await rig.fill(old, 0, 512)  # chunks 0 and 1
    assert not rig.read(new, 0, 512)
    assert await rig.load(new)
    assert rig.read(new)
    assert rig.read(old, 0, 512)
    assert not rig.read(old)


async def test_ca04_what_was_loaded_is_there_whatever_is_evicted_meanwhile(rig: CacheRig) -> None:
    thing = Thing("block", 3 * PAGE)
    writer = rig.writer_of(thing)
    for turn in range(200):
        loading = asyncio.ensure_future(load_settled(rig, thing))
        if turn % 2:
            await asyncio.sleep(0)
        busy = writer.doom([thing.oid])
        await asyncio.sleep(0)
        if not busy and not loading.done():  # a load that is done may be evicted again, at any time
            rig.evict(thing)
        writer.evicted([thing.oid])
        await loading
        assert rig.read(thing)
        rig.commit()
        assert rig.owner.counts([(thing.oid, thing.size)]) == (1, thing.size)
        assert rig.read(thing, reader=rig.new_reader())


async def load_settled(rig: CacheRig, thing: Thing) -> None:
    fill = await rig.writer_of(thing).begin_settled(thing.oid, thing.size, OWNER)
    assert fill is not None
    for first, last in fill.missing(0, thing.pages):
        assert await fill.reserve(first, last)
        await asyncio.sleep(0)
        fill.write(first, thing.span(first, last))
    fill.close()


async def test_ca04_a_load_waits_for_the_eviction_of_its_object(rig: CacheRig) -> None:
    thing = Thing("block", PAGE)
    await rig.load(thing)
    rig.commit()
    writer = rig.writer_of(thing)
    assert writer.doom([thing.oid]) == []
    assert writer.begin(thing.oid, thing.size, OWNER) is None
    loading = asyncio.ensure_future(load_settled(rig, thing))
    await asyncio.sleep(0)
    assert not loading.done()
    rig.evict(thing)
    writer.evicted([thing.oid])
    await loading
    assert rig.read(thing)


@pytest.mark.parametrize("committed", [True, False])
async def test_ca05_a_removed_file_is_a_miss_and_comes_back(rig: CacheRig, committed: bool) -> None:
    thing = Thing("block", 40 * PAGE)
    await rig.load(thing)
    rig.commit()
    os.unlink(str(rig.path(thing)))
    fresh = rig.new_reader()
    assert not rig.read(thing, reader=fresh)
    assert await rig.load(thing)
    if committed:
        rig.commit()
    assert rig.read(thing, reader=fresh)
    rig.commit()
    assert rig.owner.counts([(thing.oid, thing.size)]) == (1, thing.size)
    assert rig.disk_use()[1] == 8  # root, marker, objects, index and its two files, folder, file


async def test_ca05_an_evicted_object_stays_readable_for_who_is_reading(rig: CacheRig) -> None:
    thing = Thing("block", 40 * PAGE)
    await rig.load(thing)
    rig.commit()
    reader = rig.new_reader()
    hit = reader.find(thing.oid, thing.size, 0, thing.pages)
    assert hit is not None
    rig.evict(thing)
    reader.forget(thing.oid)
    assert reader.read(hit, thing.oid, thing.size, 0, thing.size) == thing.data
    assert reader.find(thing.oid, thing.size, 0, 1) is None
    assert await rig.load(thing)
    assert rig.read(thing, reader=reader)


async def test_ca06_never_more_than_all_is_cached(rig: CacheRig) -> None:
    things = [Thing(f"t{n}", 5 * PAGE + n) for n in range(10)]
    smaller = [replaced(thing, 2 * PAGE) for thing in things]
    for thing in things:
        await rig.load(thing)
    rig.commit()
    for thing in smaller:
        await rig.load(thing)
        await rig.load(thing)
    rig.commit()
    rig.stop()
    rig.start()
    for generation in (things, smaller):
        pairs = [(thing.oid, thing.size) for thing in generation]
        assert rig.owner.counts(pairs) == (10, sum(thing.size for thing in generation))
    usage = rig.owner.usage_by_owner()[OWNER]
    assert usage.inodes == 20
    assert usage.bytes == rig.owner.tiers[0].ledger.indexed.bytes


@pytest.mark.parametrize("limits", [Limits(24 * MIB, reserve_free=0), Limits(24 * MIB, 40, reserve_free=0)])
async def test_ca09_a_stream_larger_than_the_cache_stays_below_the_limit(tmp_path: Path, limits: Limits) -> None:
    rig = CacheRig([str(tmp_path / "cache")], limits, fetchers=2)
    for number in range(40):
        thing = Thing(f"part-{number}", 2 * MIB + number)
        stored = [await rig.fill(thing, first, min(first + 16, thing.pages)) for first in range(0, thing.pages, 16)]
        (held,), (nbytes, inodes) = rig.owner.usage(), rig.disk_use()
        assert nbytes <= held.used_bytes <= limits.bytes
        assert inodes <= held.used_inodes
        assert not limits.inodes or held.used_inodes <= limits.inodes
        rig.clock.now += 1
        rig.commit()
        assert rig.read(thing) or not all(stored)
    assert rig.owner.tiers[0].ledger.indexed.bytes > 8 * MIB
    assert rig.read(thing)
    rig.close()


async def test_ca09_leaves_free_what_a_negative_limit_says(tmp_path: Path) -> None:
    stats = os.statvfs(tmp_path)
    free = stats.f_bavail * stats.f_frsize
    rig = CacheRig([str(tmp_path / "cache")], Limits(-(free + (1 << 30)), reserve_free=0))
    thing = Thing("block", PAGE)
    assert not await rig.load(thing)
    assert not rig.read(thing)
    rig.close()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("s3://host/site-a", b"index.html"), ("s3://host/site-b", b"index.html")),
        (("s3://host-a/site", b"index.html"), ("s3://host-b/site", b"index.html")),
        (("abfss://site@account-a", b"index.html"), ("abfss://site@account-b", b"index.html")),
        (("s3://host/site", b"a/index.html"), ("s3://host/site", b"b/index.html")),
        (("s3://host/sitea", b"/x"), ("s3://host/site", b"a/x")),
    ],
)
def test_ca10_equal_names_in_different_places_are_different_objects(
    one: tuple[str, bytes], other: tuple[str, bytes]
) -> None:
    assert object_id(*one, "etag", 10) != object_id(*other, "etag", 10)
    assert object_id(*one, "etag", 10) == object_id(*one, "etag", 10)


async def test_a_page_of_an_earlier_boot_is_checked_before_use(rig: CacheRig) -> None:
    thing = Thing("weights", CHUNK + 5 * PAGE)
    await rig.load(thing)
    rig.commit()
    path = str(rig.path(thing))
    rig.power_off()
    overwrite(path, 7 * PAGE, bytes(PAGE))
    rig.start()
    assert rig.reader.complete(thing.oid, thing.size) is None
    assert rig.read(thing, 0, 7)
    with pytest.raises(BadPage) as caught:
        rig.read(thing)
    assert (caught.value.first, caught.value.last) == (7, 8)
    assert await rig.read_as_worker(thing, 0, thing.pages)
    rig.commit()
    rig.do(rig.owner.verify())
    assert rig.reader.complete(thing.oid, thing.size) is not None
    assert rig.owner.bad_pages == 0  # it was written again before the verifier came


async def test_the_verifier_promotes_what_is_right_and_drops_what_is_not(rig: CacheRig) -> None:
    good, bad = Thing("good", CHUNK + PAGE), Thing("bad", 9 * PAGE)
    for thing in (good, bad):
        await rig.load(thing)
    rig.commit()
    path = str(rig.path(bad))
    rig.power_off()
    os.truncate(path, 8 * PAGE + 100)
    rig.start()
    rig.do(rig.owner.verify())
    assert rig.owner.bad_pages == 1
    assert rig.reader.complete(good.oid, good.size) is not None
    assert rig.read(bad, 0, 8)
    assert not rig.read(bad, 8, 9)
    assert rig.owner.counts([(bad.oid, bad.size), (good.oid, good.size)]) == (1, good.size + 8 * PAGE)


async def test_a_broken_index_is_begun_anew(rig: CacheRig) -> None:
    thing = Thing("block", 5 * PAGE)
    await rig.load(thing)
    rig.commit()
    rig.power_off()
    overwrite(f"{rig.configs[0].path}/index/data.mdb", 0, b"\xff" * 16384)
    rig.start()
    assert [event[1] for event in rig.events] == ["CacheCorrupt"]
    assert not rig.read(thing)
    assert await rig.load(thing)
    assert rig.read(thing)
    rig.commit()
    assert rig.disk_use()[1] == 8  # nothing of before is left
