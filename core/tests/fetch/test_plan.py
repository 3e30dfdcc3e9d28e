"""Which ranges are asked for: everything missing once, nothing beyond what was asked and earned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cache.layout import PAGE, page_count
from stoker.fetch.plan import RANGE_PAGES, Range, Run, byte_span, plan, spans_to_consider, subtract

LARGE = 100 << 20

runs = st.lists(st.tuples(st.integers(0, 1500), st.integers(1, 600)), max_size=8).map(
    lambda pairs: [(first, first + count) for first, count in pairs]
)


def pages(spans: list[Run]) -> set[int]:
    return {page for first, last in spans for page in range(first, last)}


@pytest.mark.parametrize(
    ("size", "wanted", "ahead", "expected"),
    [
        (100, (0, 1), None, [(0, 1)]),
        (512 << 10, (3, 4), None, [(0, 32)]),
        ((512 << 10) + 1, (3, 4), None, [(3, 4)]),
        (LARGE, (3, 4), (4, 132), [(3, 132)]),
        (LARGE, (3, 4), (300, 400), [(3, 4), (300, 400)]),
        (LARGE, (300, 300), (300, 400), [(300, 400)]),
    ],
)
def test_what_a_request_may_fetch(size: int, wanted: Run, ahead: Run | None, expected: list[Run]) -> None:
    assert spans_to_consider(size, wanted, ahead) == expected


@pytest.mark.parametrize(
    ("missing", "in_flight", "wanted", "expected"),
    [
        ([], [], (0, 4), []),
        ([(0, 4)], [], (0, 4), [Range(0, 4, True)]),
        ([(0, 4)], [(0, 4)], (0, 4), []),
        ([(0, 8)], [(2, 4)], (0, 8), [Range(0, 2, True), Range(4, 8, True)]),
        ([(0, 2), (2, 4)], [], (0, 4), [Range(0, 4, True)]),
        ([(0, 2), (3, 4)], [], (0, 4), [Range(0, 2, True), Range(3, 4, True)]),
        ([(510, 530)], [], (510, 512), [Range(510, 512, True), Range(512, 530, False)]),
        ([(100, 1300)], [], (100, 101), [Range(100, 512, True), Range(512, 1024, False), Range(1024, 1300, False)]),
    ],
)
def test_ranges(missing: list[Run], in_flight: list[Run], wanted: Run, expected: list[Range]) -> None:
    assert plan(missing, in_flight, wanted) == expected


@given(missing=runs, in_flight=runs, wanted=st.tuples(st.integers(0, 2000), st.integers(1, 300)))
def test_all_that_is_missing_is_asked_once_and_nothing_else(
    missing: list[Run], in_flight: list[Run], wanted: tuple[int, int]
) -> None:
    span = wanted[0], wanted[0] + wanted[1]
    ranges = plan(missing, in_flight, span)
    asked = [page for one in ranges for page in range(one.first, one.last)]
    assert len(asked) == len(set(asked)), "no page twice"
    assert set(asked) == pages(missing) - pages(in_flight)
    for one in ranges:
        assert one.first // RANGE_PAGES == (one.last - 1) // RANGE_PAGES, "ranges are aligned"
        assert one.demand == bool(pages([(one.first, one.last)]) & pages([span]))


@given(runs, runs)
def test_subtract_is_set_difference(left: list[Run], taken: list[Run]) -> None:
    assert pages(subtract(left, taken)) == pages(left) - pages(taken)


@given(st.integers(1, 10 * PAGE))
def test_the_last_page_is_as_short_as_it_is(size: int) -> None:
    assert byte_span((0, page_count(size)), size) == (0, size)
