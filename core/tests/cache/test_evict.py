from __future__ import annotations

from stoker.cache.evict import LOOK_AHEAD, MOST_VICTIMS, Candidate, choose
from stoker.cache.ledger import Amount

A, B, C, D = (Candidate(name.encode(), epoch, 100, (epoch,)) for epoch, name in enumerate("abcd"))


def test_the_least_recently_used_go_and_no_more_than_needed() -> None:
    assert choose([A, B, C, D], Amount(150, 0), set(), set()) == [b"a", b"b"]
    assert choose([A, B, C, D], Amount(0, 3), set(), set()) == [b"a", b"b", b"c"]
    assert choose([A, B], Amount(1000, 0), set(), set()) == [b"a", b"b"]
    assert choose([A, B], Amount(), set(), set()) == []


def test_what_is_in_use_never_goes() -> None:
    assert choose([A, B, C], Amount(1000, 0), {b"a", b"c"}, set()) == [b"b"]


def test_what_no_live_session_uses_goes_first() -> None:
    assert choose([A, B, C], Amount(100, 0), set(), {0, 1}) == [b"c"]
    assert choose([A, B, C], Amount(200, 0), set(), {0, 1}) == [b"c", b"a"]


def test_a_round_is_bounded_whatever_the_cache_holds() -> None:
    looked = 0

    def many():  # type: ignore[no-untyped-def]
        nonlocal looked
        while True:
            looked += 1
            yield Candidate(looked.to_bytes(8, "big"), 0, 1, (7,))

    assert len(choose(many(), Amount(1 << 40, 0), set(), {7})) == MOST_VICTIMS
    assert looked <= MOST_VICTIMS * LOOK_AHEAD
