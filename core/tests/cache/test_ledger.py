from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cache.amount import Amount
from stoker.cache.ledger import LEAST_GRANT_BYTES, Ledger, Limits

MIB = 1 << 20
GIB = 1 << 30
PLENTY = Amount(1 << 50, 1 << 40)


def test_a_small_room_goes_to_one_and_a_large_one_is_shared() -> None:
    small = Ledger(Limits(4 * MIB, reserve_free=0))
    assert small.grant(0, 7, Amount(64 * MIB, 10), PLENTY).bytes > 3 * MIB
    large = Ledger(Limits(100 * MIB, reserve_free=0))
    assert LEAST_GRANT_BYTES < large.grant(0, 7, Amount(64 * MIB, 10), PLENTY).bytes < 26 * MIB


@pytest.mark.parametrize(
    ("limits", "free", "some"),
    [
        (Limits(0, reserve_free=150 * MIB), Amount(150 * MIB, 1000), False),
        (Limits(0, reserve_free=150 * MIB), Amount(GIB, 1000), True),
        (Limits(-2 * GIB, reserve_free=0), Amount(2 * GIB, 1000), False),
        (Limits(-2 * GIB, reserve_free=0), Amount(3 * GIB, 1000), True),
        (Limits(-2 * GIB, reserve_free=4 * GIB), Amount(3 * GIB, 1000), False),
        (Limits(GIB, -50, reserve_free=0), Amount(GIB, 50), False),
        (Limits(GIB, 0, reserve_free=0), Amount(GIB, 0), False),
        (Limits(GIB, 6, reserve_free=0), Amount(GIB, 1000), False),
    ],
)
def test_what_must_stay_free_stays_free(limits: Limits, free: Amount, some: bool) -> None:
    ledger = Ledger(limits, fixed=Amount(0, 6))
    given_ = ledger.grant(0, 7, Amount(MIB, 10), free)
    assert bool(given_.bytes and given_.inodes) is some


@given(
    st.integers(0, 1 << 32),
    st.integers(0, 5000),
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["grant", "settle", "void", "return"]), st.integers(0, 1 << 31)),
        max_size=40,
    ),
)
def test_grants_never_pass_the_limit(limit: int, inodes: int, steps: list[tuple[int, str, int]]) -> None:
    ledger = Ledger(Limits(limit, inodes, reserve_free=0))
    for fetcher, step, nbytes in steps:
        amount = Amount(nbytes, nbytes % 1000)
        if step == "grant":
            ledger.grant(fetcher, 7, amount, PLENTY)
        elif step == "settle":
            done = ledger.outstanding.get((fetcher, 7), Amount())
            ledger.settle(fetcher, 7, done)
            ledger.indexed += done
        elif step == "void":
            ledger.void(fetcher)
        else:
            ledger.settle(fetcher, 7, amount)
        assert not limit or ledger.held().bytes <= limit
        assert not inodes or ledger.held().inodes <= inodes
        assert min(ledger.granted().bytes, ledger.granted().inodes) >= 0


def test_eviction_begins_at_the_high_mark_and_goes_down_to_the_low_one() -> None:
    ledger = Ledger(Limits(100 * MIB, reserve_free=0, high=0.9, low=0.5), indexed=Amount(89 * MIB, 1))
    assert ledger.must_free(PLENTY) == Amount()
    assert ledger.must_free(PLENTY, evicting=True).bytes // MIB == 39
    ledger.indexed = Amount(91 * MIB, 1)
    assert ledger.must_free(PLENTY).bytes // MIB == 41
    ledger.unlink(7, Amount(41 * MIB, 0))
    ledger.indexed = Amount(49 * MIB, 1)
    assert ledger.must_free(PLENTY) == Amount()


def test_a_refusal_and_a_fuller_disk_begin_an_eviction_too() -> None:
    ledger = Ledger(Limits(100 * MIB, reserve_free=10 * MIB), indexed=Amount(95 * MIB, 1))
    assert ledger.must_free_for(Amount(8 * MIB, 1), PLENTY).bytes // MIB == 25
    assert ledger.must_free(Amount(5 * MIB, 1000)).bytes // MIB == 32


def test_credit_is_recalled_and_not_evicted_for() -> None:
    ledger = Ledger(
        Limits(100 * MIB, reserve_free=0), indexed=Amount(10 * MIB, 1), outstanding={(0, 7): Amount(90 * MIB, 9)}
    )
    assert ledger.must_free_for(Amount(8 * MIB, 1), PLENTY) == Amount()
