"""Who has earned read-ahead, how much, and who never does."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from stoker.fetch.plan import RANGE_PAGES
from stoker.fetch.streams import EARN_PAGES, MOST_RUNS, Ahead, Streams

PAGES, BLOCK, MOST = 65_536, 128, 4096
STEP = 8


def streams() -> Streams:
    return Streams(PAGES, BLOCK, MOST)


def read_in_order(seen: Streams, begin: int, count: int, step: int = STEP) -> list[Ahead]:
    found = [seen.seen(at, at + step) for at in range(begin, begin + count * step, step)]
    return [ahead for ahead in found if ahead is not None]


def test_a_lone_request_earns_nothing() -> None:
    assert streams().seen(100, 108) is None


def test_the_pieces_of_one_random_read_of_256_kib_earn_nothing() -> None:
    seen = streams()
    for begin in (1000, 5000, 9000):
        assert read_in_order(seen, begin, 4) == []


def test_the_sixth_touching_request_makes_a_stream_of_one_block() -> None:
    assert read_in_order(streams(), 1000, 6) == [Ahead(1048, 1048 + BLOCK, 1048 + BLOCK // 2)]


def test_two_large_touching_requests_make_one_too() -> None:
    found = read_in_order(streams(), 1000, 2, step=EARN_PAGES // 2)
    assert found == [Ahead(1048, 1048 + BLOCK, 1048 + BLOCK // 2)]


def test_where_the_object_begins_two_requests_make_one() -> None:
    seen = streams()
    assert seen.seen(0, STEP) is None, "a program that looks at a header only"
    assert seen.seen(STEP, 2 * STEP) == Ahead(16, 16 + BLOCK, 16 + BLOCK // 2)


def test_the_window_grows_at_each_trigger_up_to_the_most() -> None:
    seen = streams()
    (ahead,) = read_in_order(seen, 1000, 6)
    windows = []
    while ahead.trigger is not None and len(windows) < 8:
        before = ahead.last
        found = seen.seen(ahead.trigger, ahead.trigger + STEP)
        assert found is not None
        assert found.first == before, "nothing twice, no gap"
        windows.append(found.last - (ahead.trigger + STEP))
        ahead = found
    assert windows == [512, 1688, *[4088] * 6], "of large ones whole ranges"


def test_the_largest_window_is_kept_full_range_by_range() -> None:
    seen = streams()
    found = read_in_order(seen, 0, 2000)
    steady = found[-10:]
    assert [ahead.last - ahead.first for ahead in steady] == [RANGE_PAGES] * 10
    assert all(ahead.first % RANGE_PAGES == 0 for ahead in steady), "requests for whole ranges only"


def test_below_the_trigger_nothing_new_is_earned() -> None:
    seen = streams()
    (ahead,) = read_in_order(seen, 1000, 6)
    assert ahead.trigger is not None
    assert read_in_order(seen, 1048, (ahead.trigger - 1048) // STEP) == []


def test_at_the_end_of_the_object_it_stops() -> None:
    seen = Streams(100, BLOCK, MOST)
    assert read_in_order(seen, 0, 2) == [Ahead(16, 100, None)]
    assert read_in_order(seen, 16, 10) == []


def test_requests_that_overtake_each_other_are_one_stream() -> None:
    seen = streams()
    order = [1, 0, 2, 4, 3, 6, 5, 7]
    found = [ahead for n in order if (ahead := seen.seen(n * STEP, (n + 1) * STEP)) is not None]
    assert len(found) == 1


def test_fu_16_interleaved_streams_are_told_apart() -> None:
    seen = streams()
    begins = [number * 4096 for number in range(MOST_RUNS)]
    found: dict[int, list[Ahead]] = {begin: [] for begin in begins}
    for n in range(6):
        for begin in begins:
            ahead = seen.seen(begin + n * STEP, begin + (n + 1) * STEP)
            found[begin] += [ahead] if ahead is not None else []
    assert all(len(aheads) == 1 for aheads in found.values())


def test_reading_backwards_earns_nothing() -> None:
    seen = streams()
    assert [seen.seen(at, at + 16) for at in range(2000, 1000, -16)] == [None] * 63


def test_fu_15_random_reads_earn_almost_nothing() -> None:
    dice, seen = random.Random(5), streams()
    earned = 0
    for _ in range(100_000):
        at = dice.randrange(PAGES)
        ahead = seen.seen(at, at + 1)
        earned += ahead.last - ahead.first if ahead is not None else 0
    assert earned <= 1000


def test_no_read_ahead_where_none_is_allowed() -> None:
    assert read_in_order(Streams(PAGES, BLOCK, 0), 0, 100) == []


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 40)), max_size=60))
def test_nothing_beyond_the_object_and_no_more_than_the_most(requests: list[tuple[int, int]]) -> None:
    seen = Streams(3050, BLOCK, 512)
    for first, count in requests:
        last = min(first + count, 3050)
        ahead = seen.seen(first, last)
        if ahead is not None:
            assert 0 <= ahead.first < ahead.last <= 3050
            assert ahead.last - last <= 512 + 3050 - last
            assert ahead.trigger is None or ahead.trigger < ahead.last
