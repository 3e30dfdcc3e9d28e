"""A real fetcher on a real cache: single flight, amplification, policies, loads, errors, and lives that end."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from rigs.fetch import FetchRig, MemoryStore
from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cache.layout import PAGE
from stoker.fetch.protocol import FLAG_BAD_PAGE, FLAG_INLINE, Status
from stoker.sources.base import SourceError

KIB, MIB = 1 << 10, 1 << 20


def content(size: int, seed: int = 1) -> bytes:
    return hashlib.shake_128(bytes([seed])).digest(size)


async def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within 5 s")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest_asyncio.fixture
async def rig(tmp_path: Path, store: MemoryStore) -> AsyncIterator[FetchRig]:
    async with FetchRig(str(tmp_path), opener=store.open) as rig:
        yield rig


async def test_a_small_object_is_fetched_once_and_whole(rig: FetchRig, store: MemoryStore) -> None:
    data = store.put("a", content(100_000))
    view = await rig.mount()
    assert await view.read("a", 5, 10) == data[5:15]
    assert await view.read_all("a") == data
    assert store.asked == [(b"a", 0, 100_000)]
    assert view.cached("a")


async def test_50_readers_of_one_cold_page_make_one_request(rig: FetchRig, store: MemoryStore) -> None:
    data = store.put("a", content(10 * MIB))
    view = await rig.mount()
    got = await asyncio.gather(*(view.read("a", 5 * MIB, 4096) for _ in range(50)))
    assert got == [data[5 * MIB : 5 * MIB + 4096]] * 50
    assert store.asked == [(b"a", 5 * MIB, 5 * MIB + PAGE)]


@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1])
async def test_fu_10_every_size_is_exact_and_empty_ones_ask_nothing(
    rig: FetchRig, store: MemoryStore, size: int
) -> None:
    data = store.put("a", content(size))
    view = await rig.mount()
    await view.load("a")
    assert await view.read_all("a") == data
    assert (await view.ask("a", size, 4096)).status == Status.PRESENT
    assert bool(store.asked) == bool(size)
    assert store.bytes_asked == size


async def test_a_sequential_reader_gets_every_byte_once(rig: FetchRig, store: MemoryStore) -> None:
    data = store.put("a", content(40 * MIB + 12_345))
    view = await rig.mount()
    assert await view.read_all("a") == data
    assert store.bytes_asked == len(data)
    assert len(store.asked) < 25, "ranges of up to 4 MiB, not one request per read"


async def test_fu_16_four_interleaved_readers_are_one_stream(rig: FetchRig, store: MemoryStore) -> None:
    data = store.put("a", content(32 * MIB))
    view = await rig.mount()
    step, got = 256 * KIB, {}

    async def reader(number: int) -> None:
        for at in range(number * step, len(data), 4 * step):
            for inner in range(at, at + step, 64 * KIB):
                got[inner] = await view.read("a", inner, 64 * KIB)

    await asyncio.gather(*map(reader, range(4)))
    assert b"".join(got[at] for at in sorted(got)) == data
    assert store.bytes_asked == len(data)
    assert len(store.asked) < 40


@pytest.mark.parametrize(("length", "bound"), [(256 * KIB, 1.1), (4 * KIB, 4.5)])
async def test_random_reads_fetch_little_more_than_they_read(
    rig: FetchRig, store: MemoryStore, length: int, bound: float
) -> None:
    data = store.put("a", content(128 * MIB))
    view = await rig.mount()
    dice = random.Random(3)
    read = 0
    for _ in range(150):
        at = dice.randrange((len(data) - length) // 4096) * 4096
        # The kernel sends a read of 256 KiB in pieces of its read-ahead size.
        pieces = [(a, min(a + 128 * KIB, at + length)) for a in range(at, at + length, 128 * KIB)]
        got = await asyncio.gather(*(view.read("a", start, stop - start) for start, stop in pieces))
        assert b"".join(got) == data[at : at + length]
        read += length
    assert store.bytes_asked <= bound * read


async def test_a_load_brings_all_and_asks_only_for_what_is_missing(rig: FetchRig, store: MemoryStore) -> None:
    data = store.put("a", content(20 * MIB))
    view = await rig.mount()
    await view.read("a", 8 * MIB, PAGE)
    await view.load("a")
    assert view.cached("a")
    assert store.bytes_asked == len(data)
    await view.load("a")
    assert store.bytes_asked == len(data)


async def test_bypass_and_no_validator_are_read_exactly_and_never_stored(rig: FetchRig, store: MemoryStore) -> None:
    data = store.put("a", content(MIB))
    store.put("b", data, etag="")
    bypass, plain = await rig.mount(policy="Bypass"), await rig.mount()
    assert await bypass.read("a", 100, 1000) == await plain.read("b", 100, 1000) == data[100:1100]
    assert store.asked == [(b"a", 100, 1100), (b"b", 100, 1100)]
    assert not plain.cached("a")
    with pytest.raises(StokerError) as refused:
        await plain.load("b")
    assert refused.value.reason is Reason.UnsupportedCombination


async def test_whole_file_brings_all_behind_the_first_read(rig: FetchRig, store: MemoryStore) -> None:
    data = store.put("a", content(9 * MIB))
    view = await rig.mount(policy="WholeFile")
    assert await view.read("a", 6 * MIB, 100) == data[6 * MIB : 6 * MIB + 100]
    await eventually(lambda: view.cached("a"))
    assert store.bytes_asked == len(data)


async def test_without_credit_reads_go_through_and_a_load_waits_for_room(rig: FetchRig, store: MemoryStore) -> None:
    data = store.put("a", content(MIB))
    rig.owner.granting = False
    view = await rig.mount()
    assert await view.read("a", 5, 1000) == data[5:1005]
    assert store.asked[-1] == (b"a", 5, 1005)
    load = asyncio.create_task(view.load("a"))
    await asyncio.sleep(0.3)
    assert not load.done()
    rig.owner.granting = True
    await asyncio.wait_for(load, 5)
    assert view.cached("a")


async def test_inline_answers_carry_the_bytes_whatever_is_cached(rig: FetchRig, store: MemoryStore) -> None:
    data = store.put("a", content(PAGE * 3))
    view = await rig.mount()
    await view.load("a")
    reply = await view.ask("a", 100, 1000, FLAG_INLINE)
    assert (reply.status, reply.data) == (Status.DATA, data[100:1100])


async def test_a_bad_page_is_fetched_again(rig: FetchRig, store: MemoryStore) -> None:
    store.put("a", content(PAGE * 3))
    view = await rig.mount()
    await view.load("a")
    assert (await view.ask("a", PAGE, 10, FLAG_BAD_PAGE)).status == Status.PRESENT
    assert store.asked[1:] == [(b"a", PAGE, 2 * PAGE)]
    assert view.counts()["bad_pages"] == 1


async def test_a_fetcher_that_dies_is_asked_again_by_its_clients(rig: FetchRig, store: MemoryStore) -> None:
    data = store.put("a", content(3 * MIB))
    view = await rig.mount()
    blocked = asyncio.Event()

    async def hold(*_: object) -> None:
        blocked.set()
        await asyncio.Event().wait()

    store.before = hold
    read = asyncio.create_task(view.read("a", 0, PAGE))
    await asyncio.wait_for(blocked.wait(), 5)
    store.before = None
    await rig.stop_fetcher()
    assert not read.done()
    rig.start_fetcher()
    assert await asyncio.wait_for(read, 5) == data[:PAGE]


async def test_a_daemon_that_dies_stops_neither_reads_nor_what_is_told_to_the_next(
    rig: FetchRig, store: MemoryStore
) -> None:
    data = store.put("a", content(MIB))
    view = await rig.mount()
    await view.read("a", 0, PAGE)
    await rig.owner.stop()
    assert await asyncio.wait_for(view.read_all("a"), 10) == data
    rig.owner.start()
    await eventually(lambda: len(rig.owner.hellos) == 2)
    assert sum(nbytes for _tier, _account, nbytes, _inodes in rig.owner.hellos[-1]["credit"]) > 0
    assert await view.read_all("a") == data


async def test_a_cancelled_read_leaves_the_others_alone(rig: FetchRig, store: MemoryStore) -> None:
    data = store.put("a", content(MIB))
    view = await rig.mount()
    gate = asyncio.Event()
    store.before = lambda *_: gate.wait()
    first = asyncio.create_task(view.read("a", 0, PAGE))
    second = asyncio.create_task(view.read("a", 0, PAGE))
    await asyncio.sleep(0.05)
    first.cancel()
    await asyncio.sleep(0.05)
    gate.set()
    assert await asyncio.wait_for(second, 5) == data[:PAGE]
    assert len(store.asked) == 1


async def test_a_slow_store_does_not_stop_another(rig: FetchRig, store: MemoryStore) -> None:
    data = store.put("a", content(4 * MIB))
    gate = asyncio.Event()
    slow, fast = await rig.mount(), await rig.mount(policy="Bypass")
    store.before = lambda _key, start, _stop: gate.wait() if start >= MIB else asyncio.sleep(0)
    stuck = [asyncio.create_task(slow.read("a", MIB + n * PAGE * 2, 10)) for n in range(80)]
    await asyncio.sleep(0.05)
    assert await asyncio.wait_for(fast.read("a", 0, 100), 2) == data[:100]
    gate.set()
    await asyncio.gather(*stuck)


async def test_a_session_that_has_ended_serves_nothing(rig: FetchRig, store: MemoryStore) -> None:
    store.put("a", b"x")
    view = await rig.mount()
    await view.load("a")
    slot, inode = view.spec.slot, view.inode("a")
    await rig.unmount(view)
    await asyncio.sleep(0.05)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(rig.client.load(slot, inode), 0.2)


async def test_memory_is_bounded_whatever_the_number_of_readers(rig: FetchRig, store: MemoryStore) -> None:
    data = store.put("a", content(64 * MIB))
    view = await rig.mount(policy="Bypass")
    budget = rig.fetcher.budget
    budget.limit = 4 * MIB
    peak = 0

    async def watch(*_: object) -> None:
        nonlocal peak
        peak = max(peak, budget.used)

    store.before = watch
    offsets = [n * MIB // 4 for n in range(200)]
    got = await asyncio.gather(*(view.read("a", at, MIB) for at in offsets))
    assert all(piece == data[at : at + MIB] for piece, at in zip(got, offsets, strict=True))
    assert 0 < peak <= 4 * MIB
    assert budget.used == 0


async def test_an_object_that_cannot_fit_is_read_but_not_loaded(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.fetch.objects.NO_ROOM_S", 0.5)
    data = store.put("a", content(48 * MIB))
    async with FetchRig(str(tmp_path), limit_bytes=24 * MIB, opener=store.open) as rig:
        view = await rig.mount()
        with pytest.raises(StokerError) as failed:
            await asyncio.wait_for(view.load("a"), 20)
        assert failed.value.reason is Reason.CacheFull
        assert await view.read_all("a", MIB) == data


async def test_a_daemon_that_is_stopped_delays_no_reader_for_long(rig: FetchRig, store: MemoryStore) -> None:
    data = store.put("a", content(MIB))
    view = await rig.mount()
    await view.load("a")
    rig.owner.mute = True
    store.put("b", data)
    other = await rig.mount()
    assert await asyncio.wait_for(other.read_all("b"), 10) == data


async def test_events_tell_why_reads_fail_once_a_minute(rig: FetchRig, store: MemoryStore) -> None:
    store.put("a", content(MIB))
    view = await rig.mount()

    async def changed(*_: object) -> None:
        raise SourceError(Reason.SourceChanged, "another version", place="s3://memory/a")

    store.before = changed
    for page in range(3):
        with pytest.raises(StokerError):
            await view.read("a", page * PAGE, PAGE)
    await eventually(lambda: any(message["op"] == "changed" for message in rig.owner.messages))
    told = [message for message in rig.owner.messages if message["op"] in ("event", "changed")]
    assert [(message["op"], message["path"]) for message in told] == [("changed", "a")]


async def test_a_source_that_breaks_in_an_unforeseen_way_is_an_error_of_its_own(
    rig: FetchRig, store: MemoryStore
) -> None:
    store.put("a", content(MIB))
    view = await rig.mount()

    async def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    store.before = broken
    with pytest.raises(StokerError) as failed:
        await view.read("a", 0, PAGE)
    assert failed.value.reason is Reason.Internal
