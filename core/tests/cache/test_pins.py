"""Pins: never evicted, refused before they do harm, paid for by who pins."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigs.cache import OWNER, CacheRig, cached, load, things
from stoker.cache.accounts import AccountPolicy
from stoker.cache.amount import NOTHING, Amount
from stoker.cache.layout import PAGE, object_cost, owner_id
from stoker.cache.ledger import NO_LIMIT, Limits
from stoker.cache.pinjobs import cost_of

MIB = 1 << 20
A, B = "team/a", "team/b"
ONE = object_cost(16 * PAGE)


@pytest.fixture
def rig(tmp_path: Path):  # type: ignore[no-untyped-def]
    rig = CacheRig([str(tmp_path / "cache")], Limits(16 * MIB, reserve_free=0), fetchers=2)
    rig.know({A: AccountPolicy(), B: AccountPolicy()})
    yield rig
    rig.close()


def pinned(rig: CacheRig, name: str) -> tuple[Amount, Amount]:
    mine = rig.owner.pins.of(owner_id(name))
    return mine.whole, mine.filled


async def test_what_is_pinned_is_never_evicted_whatever_happens(rig: CacheRig) -> None:
    kept = things("kept", 10)
    await load(rig, kept[:5], A)
    rig.pin(A, kept)
    await load(rig, kept[5:], A)
    await load(rig, things("more", 200), B)
    rig.know({A: AccountPolicy(priority=0, ttl_s=1)})
    rig.clock.now += 1000
    await load(rig, things("and more", 200), B)
    rig.owner.forget(A)
    await load(rig, things("still more", 200), B)
    assert cached(rig, kept) == 10
    assert pinned(rig, A) == (Amount(10 * ONE, 10), Amount(10 * ONE, 10))


async def test_room_for_pins_is_kept_from_the_moment_they_are_accepted(rig: CacheRig) -> None:
    """Others have filled the cache: they make room, also those of higher priority, and do not take it again."""
    rig.know({A: AccountPolicy(priority=1), B: AccountPolicy(priority=900)})
    rig.live = {A, B}
    await load(rig, things("before", 100), B)
    kept = things("kept", 40)
    rig.pin(A, kept)
    rig.evict_as_needed()
    await load(rig, things("between", 100), B)
    assert await load(rig, kept, A) == 40
    await load(rig, things("after", 100), B)
    assert cached(rig, kept) == 40


async def test_pins_that_cannot_fit_are_refused_with_the_numbers(rig: CacheRig) -> None:
    rig.pin(B, things("b", 20))
    wanted = [(thing.oid, thing.size) for thing in things("a", 50)]
    demand = rig.owner.pins.demand(owner_id(A), wanted)
    assert demand.whole == cost_of(wanted) == Amount(50 * ONE, 50)
    misfit = rig.owner.pins.misfit(demand, NO_LIMIT)
    assert misfit is not None
    assert misfit.wanted == Amount(50 * ONE, 50)
    assert 30 * ONE < misfit.free.bytes < 50 * ONE
    assert misfit.where == rig.owner.tiers[0].root
    fewer = rig.owner.pins.demand(owner_id(A), wanted[: misfit.free.bytes // ONE - 1])
    assert rig.owner.pins.misfit(fewer, NO_LIMIT) is None
    of_its_own = rig.owner.pins.misfit(fewer, Amount(3 * ONE, 100))
    assert of_its_own is not None
    assert of_its_own.free.bytes == 3 * ONE
    # What another has pinned already takes no more room.
    shared = rig.owner.pins.demand(owner_id(A), [(thing.oid, thing.size) for thing in things("b", 20)])
    assert shared.by_tier == (Amount(20 * ONE, 20),)


async def test_as_much_as_is_accepted_can_be_cached(rig: CacheRig) -> None:
    await load(rig, things("before", 100), B)
    wanted, some = 1, things("kept", 80, pages=4)
    while True:
        demand = rig.owner.pins.demand(owner_id(A), [(thing.oid, thing.size) for thing in some[: wanted + 1]])
        if wanted == len(some) or rig.owner.pins.misfit(demand, NO_LIMIT) is not None:
            break
        wanted += 1
    rig.pin(A, some[:wanted])
    rig.evict_as_needed()
    assert await load(rig, some[:wanted], A) == wanted


async def test_unpinned_files_are_evicted_as_all_others_again(rig: CacheRig) -> None:
    kept = things("kept", 20)
    rig.pin(A, kept)
    await load(rig, kept, A)
    rig.pin(A, kept[10:])
    assert pinned(rig, A) == (Amount(10 * ONE, 10), Amount(10 * ONE, 10))
    rig.know({A: AccountPolicy(ttl_s=10)})
    rig.clock.now += 1000
    rig.evict_as_needed()
    assert (cached(rig, kept[:10]), cached(rig, kept[10:])) == (0, 10)
    rig.unpin(A)
    assert pinned(rig, A) == (NOTHING, NOTHING)
    rig.evict_as_needed()
    assert cached(rig, kept) == 0


async def test_who_pins_a_file_that_another_brought_is_charged_for_it(rig: CacheRig) -> None:
    shared = things("shared", 10)
    await load(rig, shared, A)
    rig.know({B: AccountPolicy(bytes=5 * ONE)})
    rig.pin(B, shared[:5])
    accounts = rig.owner.accounts
    assert accounts.charged(owner_id(B)) == Amount(5 * ONE, 5)
    assert accounts.charged(owner_id(A)) == Amount(5 * ONE, 5)
    rig.know({A: AccountPolicy(bytes=ONE)})
    rig.evict_as_needed()
    assert (cached(rig, shared[:5]), cached(rig, shared[5:]) <= 1) == (5, True)


async def test_pins_and_what_they_hold_are_the_same_after_a_restart(rig: CacheRig) -> None:
    kept = things("kept", 12)
    rig.pin(A, kept)
    await load(rig, kept[:7], A)
    before = pinned(rig, A)
    assert before == (Amount(12 * ONE, 12), Amount(7 * ONE, 7))
    rig.stop()
    rig.start()
    assert pinned(rig, A) == before
    rig.kill_owner()
    rig.open_owner()
    assert pinned(rig, A) == before
    await load(rig, things("more", 200), B)
    assert cached(rig, kept) == 7
    assert await load(rig, kept[7:], A) == 5


async def test_a_pinned_file_that_is_lost_has_its_room_kept(rig: CacheRig) -> None:
    kept = things("kept", 4)
    rig.pin(A, kept)
    await load(rig, kept, A)
    rig.evict(kept[0])  # not even when it is asked for
    assert cached(rig, kept) == 4
    rig.unpin(A)
    rig.evict(kept[0])
    rig.pin(A, kept)
    assert pinned(rig, A) == (Amount(4 * ONE, 4), Amount(3 * ONE, 3))


async def test_at_its_own_quota_a_data_set_gives_what_is_not_pinned(rig: CacheRig) -> None:
    rig.know({OWNER: AccountPolicy(bytes=10 * ONE)})
    kept = things("kept", 8)
    await load(rig, things("other", 30), OWNER)
    rig.pin(OWNER, kept)
    assert await load(rig, kept, OWNER) == 8
    await load(rig, things("again", 30), OWNER)
    assert cached(rig, kept) == 8
    assert rig.owner.accounts.held(owner_id(OWNER)).bytes <= 10 * ONE
