"""Who gives room, and how much: pure tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cache.amount import Amount
from stoker.cache.shares import Claim, Why, above_level, eligible, goal, shares

A, B, C, D = 1, 2, 3, 4


def claim(account: int, nbytes: int, priority: int = 100, *, live: bool = True, known: bool = True) -> Claim:
    return Claim(account, Amount(nbytes, nbytes // 10), priority, live, known)


def given_by(claims: list[Claim], needed: int, highest: int | None = None) -> dict[int, tuple[int, Why]]:
    return {share.account: (share.amount.bytes, share.why) for share in shares(claims, Amount(needed), highest)}


@pytest.mark.parametrize(
    ("claims", "needed", "expected"),
    [
        ([claim(A, 100), claim(B, 50)], 0, {}),
        ([claim(A, 100), claim(B, 50)], 30, {A: (30, Why.Lru)}),
        ([claim(A, 100), claim(B, 50)], 70, {A: (60, Why.Lru), B: (10, Why.Lru)}),
        ([claim(A, 100), claim(B, 50)], 999, {A: (100, Why.Lru), B: (50, Why.Lru)}),
        ([claim(A, 100, 200), claim(B, 50, 10)], 30, {B: (30, Why.Priority)}),
        ([claim(A, 100, 200), claim(B, 50, 10)], 60, {B: (50, Why.Priority), A: (10, Why.Lru)}),
        ([claim(A, 100, live=False), claim(B, 500)], 60, {A: (60, Why.Lru)}),
        ([claim(A, 100, known=False), claim(B, 500, 0)], 60, {A: (60, Why.Unreferenced)}),
        ([claim(A, 100, 0, live=False), claim(B, 10, known=False)], 60, {B: (10, Why.Unreferenced), A: (50, Why.Lru)}),
    ],
)
def test_who_gives(claims: list[Claim], needed: int, expected: dict[int, tuple[int, Why]]) -> None:
    assert given_by(claims, needed) == expected


def test_nothing_of_higher_priority_gives_for_one_of_lower() -> None:
    claims = [claim(A, 100, 200), claim(B, 50, 100), claim(C, 30, 10)]
    assert given_by(claims, 70, highest=100) == {C: (30, Why.Priority), B: (40, Why.Priority)}
    assert given_by(claims, 70, highest=10) == {C: (30, Why.Priority)}
    assert [c.account for c in eligible(claims, 100)] == [B, C]


def test_the_wish_of_one_of_higher_priority_is_the_reason() -> None:
    assert given_by([claim(A, 100, 10)], 20, highest=50) == {A: (20, Why.Priority)}
    assert given_by([claim(A, 100, 10)], 20, highest=10) == {A: (20, Why.Lru)}


@given(st.lists(st.integers(0, 1000), max_size=12), st.integers(0, 5000))
def test_the_largest_give_down_to_one_level(held: list[int], needed: int) -> None:
    gives = above_level(held, needed)
    assert all(0 <= give <= have for give, have in zip(gives, held, strict=True))
    assert min(needed, sum(held)) <= sum(gives) <= min(needed + len(held), sum(held))
    left = [have - give for give, have in zip(gives, held, strict=True)]
    givers = [rest for rest, give in zip(left, gives, strict=True) if give]
    assert not givers or max(left) <= max(givers)


def test_few_are_not_emptied_for_the_low_mark_of_the_whole() -> None:
    whole, wanted = Amount(300, 30), Amount(8, 1)
    assert goal([claim(A, 100)], wanted, whole, 0.7) == Amount(30, 3)
    assert goal([claim(A, 10)], wanted, whole, 0.7) == Amount(8, 1)
    assert goal([claim(A, 10_000)], wanted, whole, 0.7) == whole
    assert goal([claim(A, 100)], wanted, Amount(), 0.7) == Amount()
