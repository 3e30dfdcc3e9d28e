"""Turns: readers first, each session within its threads, all within memory, nobody forgotten."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from stoker.fetch.budget import Budget
from stoker.fetch.lanes import UNITS, Lane, Lanes, Priority, Ticket
from stoker.fetch.plan import RANGE_PAGES
from stoker.fetch.retry import Rate

MIB = 1 << 20


def lanes_of(limit: int = 64 * MIB) -> Lanes:
    return Lanes(Budget(limit))


async def queue(lanes: Lanes, *tickets: Ticket) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(lanes.enter(ticket)) for ticket in tickets]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_threads_that_a_user_wrote_count_requests() -> None:
    lanes = lanes_of()
    lane = Lane(lanes, 2, Rate(), cores=2)
    tickets = [lane.ticket(Priority.DEMAND, 1, 1) for _ in range(3)]
    tasks = await queue(lanes, *tickets)
    assert [task.done() for task in tasks] == [True, True, False]
    lanes.leave(tickets[0])
    await tasks[2]


async def test_by_default_small_requests_count_by_their_size() -> None:
    lanes = lanes_of()
    lane = Lane(lanes, 0, Rate(), cores=2)
    small = [lane.ticket(Priority.LOAD, 4, 1) for _ in range(8 * UNITS)]
    tasks = await queue(lanes, *small)
    assert sum(task.done() for task in tasks) == 7 * UNITS, "an eighth is kept for readers"
    reader = lane.ticket(Priority.DEMAND, RANGE_PAGES, 1)
    (read,) = await queue(lanes, reader)
    assert read.done()
    for task in tasks:
        task.cancel()


async def test_readers_go_before_read_ahead_before_loads() -> None:
    lanes = lanes_of()
    lane = Lane(lanes, 1, Rate(), cores=2)
    first = lane.ticket(Priority.LOAD, 1, 1)
    await lanes.enter(first)
    order: list[str] = []

    async def turn(name: str, ticket: Ticket) -> None:
        await lanes.enter(ticket)
        order.append(name)
        lanes.leave(ticket)

    hurried = lane.ticket(Priority.LOAD, 1, 1)
    waiting = [("load", Priority.LOAD), ("ahead", Priority.AHEAD), ("demand", Priority.DEMAND)]
    tasks = [asyncio.create_task(turn(name, lane.ticket(priority, 1, 1))) for name, priority in waiting]
    tasks.append(asyncio.create_task(turn("hurried", hurried)))
    await asyncio.sleep(0)
    hurried.hurry()
    lanes.leave(first)
    await asyncio.gather(*tasks)
    assert order == ["demand", "hurried", "ahead", "load"]


async def test_a_full_lane_stops_no_other() -> None:
    lanes = lanes_of()
    slow, fast = Lane(lanes, 1, Rate(), 2), Lane(lanes, 1, Rate(), 2)
    tasks = await queue(lanes, *(slow.ticket(Priority.DEMAND, 1, 1) for _ in range(5)))
    await asyncio.wait_for(lanes.enter(fast.ticket(Priority.DEMAND, 1, 1)), 1)
    for task in tasks:
        task.cancel()


async def test_memory_is_bounded_and_given_in_order() -> None:
    lanes = lanes_of(4 * MIB)
    one, two = Lane(lanes, 8, Rate(), 2), Lane(lanes, 8, Rate(), 2)
    tickets = [one.ticket(Priority.DEMAND, 1, MIB) for _ in range(4)]
    await queue(lanes, *tickets)
    assert lanes.budget.used == 4 * MIB
    large, small = two.ticket(Priority.DEMAND, 1, 3 * MIB), one.ticket(Priority.DEMAND, 1, MIB)
    first, second = await queue(lanes, large, small)
    lanes.leave(tickets[0])
    await asyncio.sleep(0)
    assert (first.done(), second.done()) == (False, False), "nobody overtakes who waits for memory"
    for ticket in tickets[1:3]:
        lanes.leave(ticket)
    await first
    assert lanes.budget.used <= 4 * MIB
    lanes.leave(large)
    await second


async def test_what_is_larger_than_all_memory_goes_alone() -> None:
    lanes = lanes_of(MIB)
    lane = Lane(lanes, 8, Rate(), 2)
    await asyncio.wait_for(lanes.enter(lane.ticket(Priority.DEMAND, 1, 10 * MIB)), 1)


async def test_a_cancelled_wait_takes_nothing() -> None:
    lanes = lanes_of()
    lane = Lane(lanes, 1, Rate(), 2)
    holder = lane.ticket(Priority.DEMAND, 1, 7)
    await lanes.enter(holder)
    gone, stays = await queue(lanes, lane.ticket(Priority.DEMAND, 1, 7), lane.ticket(Priority.DEMAND, 1, 7))
    gone.cancel()
    lanes.leave(holder)
    await asyncio.wait_for(stays, 1)
    assert lanes.budget.used == 7


async def test_a_turn_that_comes_while_its_wait_is_cancelled_goes_on_to_the_next() -> None:
    lanes = lanes_of()
    lane = Lane(lanes, 1, Rate(), 2)
    holder = lane.ticket(Priority.DEMAND, 1, 7)
    await lanes.enter(holder)
    gone, stays = await queue(lanes, lane.ticket(Priority.DEMAND, 1, 7), lane.ticket(Priority.DEMAND, 1, 7))
    lanes.leave(holder)
    gone.cancel()
    await asyncio.wait_for(stays, 1)


async def test_a_store_that_refuses_is_left_alone_for_the_time_it_said() -> None:
    now = 0.0
    lanes, rate = lanes_of(), Rate(lambda: now)
    lane = Lane(lanes, 8, rate, 2)
    rate.refused(0.05)
    (held,) = await queue(lanes, lane.ticket(Priority.DEMAND, 1, 1))
    assert not held.done()
    now = 0.06
    await asyncio.wait_for(held, 1)


@pytest.mark.parametrize("looks", range(1, 12))
async def test_a_pause_that_ends_while_it_is_looked_at_forgets_nobody(looks: int) -> None:
    """Between two looks at the clock, whichever they are."""
    calls = itertools.count()
    lanes, rate = lanes_of(), Rate(lambda: 0.0 if next(calls) < looks else 1.0)
    rate.refused(0.05)
    (waiting,) = await queue(lanes, Lane(lanes, 1, rate, 2).ticket(Priority.DEMAND, 1, 1))
    await asyncio.wait_for(waiting, 1)


async def test_a_store_that_pauses_for_long_holds_up_no_other() -> None:
    lanes, slow, quick = lanes_of(), Rate(), Rate()
    slow.refused(30)
    quick.refused(0.02)
    late, soon = (Lane(lanes, 1, rate, 2).ticket(Priority.DEMAND, 1, 1) for rate in (slow, quick))
    waiting, served = await queue(lanes, late, soon)
    await asyncio.wait_for(served, 2)
    waiting.cancel()
