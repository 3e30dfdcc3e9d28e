from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cache.layout import (
    BLOCK,
    CHUNK,
    PAGE,
    charge,
    chunk_pages,
    object_id,
    object_path,
    page_span,
    pages_cost,
    parse_object_name,
    run_bits,
    runs_of,
    tier_of,
)


@pytest.mark.parametrize(
    ("offset", "length", "size", "span"),
    [
        (0, 1, 1, (0, 1)),
        (0, PAGE, 10 * PAGE, (0, 1)),
        (PAGE - 1, 2, 10 * PAGE, (0, 2)),
        (PAGE, 1 << 40, 2 * PAGE + 1, (1, 3)),
        (5, 10, 5, (0, 0)),
        (0, 0, 5, (0, 0)),
    ],
)
def test_span_of_a_read(offset: int, length: int, size: int, span: tuple[int, int]) -> None:
    assert page_span(offset, length, size) == span


@given(st.integers(0, (1 << 256) - 1), st.integers(0, 1000))
def test_runs_are_the_bits(bits: int, base: int) -> None:
    runs = runs_of(bits, base)
    assert sum(run_bits(first - base, last - base) for first, last in runs) == bits
    assert all(one[1] < two[0] for one, two in pairwise(runs))


@pytest.mark.parametrize(
    ("size", "chunk", "bits", "cost"),
    [
        (1, 0, 1, BLOCK),
        (PAGE, 0, 1, PAGE),
        (PAGE + 1, 0, 0b11, PAGE + BLOCK),
        (PAGE + 5000, 0, 0b10, 2 * BLOCK),
        (CHUNK + 1, 0, run_bits(0, 256), CHUNK),
        (CHUNK + 1, 1, 1, BLOCK),
    ],
)
def test_cost_of_pages_on_disk(size: int, chunk: int, bits: int, cost: int) -> None:
    assert pages_cost(size, chunk, bits) == cost


@given(st.integers(1, 2 * CHUNK), st.integers(0, (1 << 256) - 1), st.integers(0, (1 << 256) - 1))
def test_pages_are_charged_once(size: int, some: int, more: int) -> None:
    whole = run_bits(0, chunk_pages(size, 0))
    some, more = some & whole, more & whole
    assert charge(size, 0, some, 0) + charge(size, 0, more, some) == charge(size, 0, some | more, 0)


def test_object_names_are_read_back_and_foreign_ones_are_not() -> None:
    oid = object_id("s3://a", b"k", "e", 1)
    assert parse_object_name(object_path("/r", oid, 17).rpartition("/")[2]) == (oid, 17)
    for name in ("x", oid.hex(), f"{oid.hex()}.", f"{oid.hex()}.01", f"{oid.hex()}.-1", "zz" * 20 + ".1"):
        assert parse_object_name(name) is None


def test_a_new_tier_takes_only_its_share() -> None:
    seeds = [bytes([n]) * 16 for n in range(4)]
    oids = [object_id("s3://a", str(n).encode(), "e", 1) for n in range(2000)]
    before = [tier_of(oid, seeds[:3]) for oid in oids]
    after = [tier_of(oid, seeds) for oid in oids]
    assert all(now in (then, 3) for then, now in zip(before, after, strict=True))
    assert all(400 < after.count(tier) < 600 for tier in range(4))
