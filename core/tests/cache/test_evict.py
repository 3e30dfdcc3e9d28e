"""Limits of data sets that share a cache: who is evicted, why, and what is never passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigs.cache import OWNER, CacheRig, Thing, cached, load, things
from stoker.cache.accounts import AccountPolicy
from stoker.cache.amount import Amount
from stoker.cache.index import IndexWriter
from stoker.cache.layout import PAGE, owner_id
from stoker.cache.ledger import Limits
from stoker.cache.shares import Why

MIB = 1 << 20
A, B = "team/a", "team/b"


@pytest.fixture
def rig(tmp_path: Path):  # type: ignore[no-untyped-def]
    rig = CacheRig([str(tmp_path / "cache")], Limits(16 * MIB, reserve_free=0), fetchers=2)
    yield rig
    rig.close()


def know(rig: CacheRig, **policies: AccountPolicy) -> None:
    rig.know({f"team/{name}": policy for name, policy in policies.items()})


def charged(rig: CacheRig, name: str) -> Amount:
    return rig.owner.accounts.charged(owner_id(name))


def held(rig: CacheRig, name: str) -> Amount:
    return rig.owner.accounts.held(owner_id(name))


async def test_a_quota_is_never_passed_and_frees_only_its_own(rig: CacheRig) -> None:
    know(rig, a=AccountPolicy(bytes=3 * MIB), b=AccountPolicy())
    others = things("b", 10)
    await load(rig, others, B)
    for thing in things("a", 40):
        await load(rig, [thing], A)
        assert held(rig, A).bytes <= 3 * MIB
    assert held(rig, A).bytes > 3 * MIB * 0.6
    assert cached(rig, others) == len(others)
    assert set(rig.why) == {Why.Quota}


async def test_a_limit_of_files_is_never_passed(rig: CacheRig) -> None:
    know(rig, a=AccountPolicy(inodes=5))
    for thing in things("a", 20, pages=1):
        await load(rig, [thing], A)
        assert held(rig, A).inodes <= 5
    assert set(rig.why) == {Why.Quota}


async def test_leave_free_leaves_that_much_to_others(rig: CacheRig) -> None:
    know(rig, a=AccountPolicy(bytes=-12 * MIB), b=AccountPolicy())
    await load(rig, things("a", 60), A)
    assert 2 * MIB < held(rig, A).bytes <= 4 * MIB
    await load(rig, things("b", 24), B)
    assert Why.Lru not in rig.why


async def test_low_priority_makes_room_for_high_and_never_the_other_way(rig: CacheRig) -> None:
    know(rig, a=AccountPolicy(priority=200), b=AccountPolicy(priority=10))
    rig.live = {A, B}
    low, high = things("low", 60), things("high", 40)
    await load(rig, low, B)
    assert await load(rig, high, A) >= 39
    assert cached(rig, high) >= 39
    assert set(rig.why) <= {Why.Priority, Why.Lru}
    before = cached(rig, high)
    await load(rig, things("more", 100), B)
    assert cached(rig, high) == before


async def test_equals_share_and_none_pushes_the_other_below_its_part(rig: CacheRig) -> None:
    know(rig, a=AccountPolicy(), b=AccountPolicy())
    rig.live = {A, B}
    await load(rig, things("a", 20), A)
    part = charged(rig, A).bytes
    await load(rig, things("b", 200), B)
    assert charged(rig, A).bytes == part == 20 * (16 * PAGE + 4096)  # 5 of 16 MiB: less than half
    assert charged(rig, B).bytes > 5 * MIB
    await load(rig, things("more", 200), A)
    assert min(charged(rig, A).bytes, charged(rig, B).bytes) > 5 * MIB


async def test_what_was_not_used_for_its_ttl_goes_and_the_rest_stays(rig: CacheRig) -> None:
    know(rig, a=AccountPolicy(ttl_s=3600), b=AccountPolicy())
    old, kept = things("old", 3), things("kept", 3)
    await load(rig, old, A)
    await load(rig, kept, B)
    rig.clock.now += 1800
    rig.owner.touch([old[0].oid], A)
    rig.commit()
    rig.clock.now += 1900
    rig.evict_as_needed()
    assert [rig.read(thing) for thing in old] == [True, False, False]
    assert cached(rig, kept) == 3
    assert rig.why == {Why.Ttl: 2}


async def test_what_another_data_set_uses_is_charged_to_it_instead_of_evicted(rig: CacheRig) -> None:
    know(rig, a=AccountPolicy(ttl_s=60), b=AccountPolicy(), c=AccountPolicy(bytes=PAGE))
    shared, own = things("shared", 2), things("own", 2)
    await load(rig, shared + own, A)
    rig.owner.touch([thing.oid for thing in shared], "team/c")  # has no room for them
    rig.commit()
    rig.owner.touch([thing.oid for thing in shared], B)
    rig.commit()
    usage = rig.owner.usage_by_owner()
    assert usage[A].inodes == 4
    assert usage[B].inodes == 2  # counted for each, on disk once
    assert rig.owner.tiers[0].ledger.indexed.inodes == 4
    rig.clock.now += 100
    rig.evict_as_needed()
    assert cached(rig, shared) == 2
    assert cached(rig, own) == 0
    assert charged(rig, A) == Amount()
    assert charged(rig, B) == rig.owner.usage_by_owner()[B] == rig.owner.tiers[0].ledger.indexed


async def test_what_nobody_knows_any_more_goes_first(rig: CacheRig) -> None:
    know(rig, a=AccountPolicy(priority=1000), b=AccountPolicy())
    rig.live = {B}
    left, kept = things("left", 24), things("kept", 20)
    await load(rig, left, A)
    await load(rig, kept, B)
    rig.owner.forget(A)
    await load(rig, things("new", 22), B)
    assert cached(rig, left) < 24
    assert cached(rig, kept) == 20
    assert set(rig.why) == {Why.Unreferenced}


async def test_a_limit_that_is_lowered_counts_from_the_next_round_on(rig: CacheRig) -> None:
    know(rig, a=AccountPolicy(), b=AccountPolicy())
    await load(rig, things("a", 40), A)
    know(rig, a=AccountPolicy(bytes=4 * MIB))
    rig.evict_as_needed()
    assert 2 * MIB < charged(rig, A).bytes <= 4 * MIB
    know(rig, a=AccountPolicy(bytes=0))
    assert await load(rig, things("more", 10), A) == 10


async def test_limits_and_sums_are_the_same_after_a_restart(rig: CacheRig) -> None:
    know(rig, a=AccountPolicy(bytes=3 * MIB), b=AccountPolicy())
    await load(rig, things("a", 20), A)
    await load(rig, things("b", 20), B)
    before = [charged(rig, A), charged(rig, B)]
    rig.stop()
    rig.start()
    assert [charged(rig, A), charged(rig, B)] == before
    await load(rig, things("again", 20), A)
    assert held(rig, A).bytes <= 3 * MIB


async def test_an_index_of_the_first_version_is_taken_over(rig: CacheRig) -> None:
    """Its order of eviction was one for all, and it did not say who is charged."""
    some = things("old", 5)
    await load(rig, some, OWNER)
    rig.stop()
    index = IndexWriter(rig.configs[0].path)
    with index.write() as txn:
        totals = txn.totals()
        assert totals is not None
        totals.version = 1
        txn.put_totals(totals)
        txn.empty_sums()
    index.close()
    rig.start()
    assert cached(rig, some) == 5
    assert charged(rig, OWNER).inodes == 5
    rig.know({OWNER: AccountPolicy(bytes=MIB)})
    rig.evict_as_needed()
    assert 0 < cached(rig, some) < 5


def let_go(rig: CacheRig, some: list[Thing], name: str) -> int:
    """How many files went."""
    jobs = rig.owner.evictions.let_go([thing.oid for thing in some], name, frozenset())
    rig.do(jobs)
    return sum(len(job.gone) for job in jobs)


async def test_what_a_data_set_needs_no_more_is_freed_but_not_what_another_uses(rig: CacheRig) -> None:
    know(rig, a=AccountPolicy(), b=AccountPolicy())
    own, shared, brought = things("own", 3), things("shared", 4), things("brought", 2)
    await load(rig, own + shared, A)
    await load(rig, brought, B)
    rig.owner.touch([thing.oid for thing in shared], B)
    rig.owner.touch([thing.oid for thing in brought], A)
    rig.commit()
    assert let_go(rig, own + shared + brought, A) == 3
    assert cached(rig, own) == 0
    assert cached(rig, shared + brought) == 6
    assert charged(rig, A) == held(rig, A) == Amount()
    assert charged(rig, B).inodes == 6
    assert A not in {name for name, amount in rig.owner.usage_by_owner().items() if amount != Amount()}
    assert let_go(rig, own + shared + brought, A) == 0, "it holds none of them"
    assert let_go(rig, shared + brought, B) == 6


async def test_what_is_pinned_is_not_freed_with_its_generation(rig: CacheRig) -> None:
    know(rig, a=AccountPolicy())
    some = things("a", 4)
    await load(rig, some, A)
    rig.pin(A, some[:2])
    assert let_go(rig, some, A) == 2
    assert cached(rig, some[:2]) == 2
