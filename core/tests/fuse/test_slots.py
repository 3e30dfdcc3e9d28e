"""A request is never lost between the kernel's copy and its answer, whichever instruction the worker died at."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from stoker.fuse.protocol import IN_HEADER, Op
from stoker.fuse.slots import MAX_DEATHS, PENDING_RECORDS, RequestPool, create_pool


@pytest.fixture
def pool_fd() -> Iterator[int]:
    fd = create_pool()
    yield fd
    os.close(fd)


def land(pool: RequestPool, session: int, unique: int, body: bytes = b"") -> bytes:
    """What the kernel does: copy a request into the landing slot."""
    pool.expect(session)
    request = IN_HEADER.pack(IN_HEADER.size + len(body), Op.READ, unique, 1, 0, 0, 0, 0, 0) + body
    pool.landing[: len(request)] = request
    return request


def test_a_request_in_the_landing_slot_is_found_by_the_successor(pool_fd: int) -> None:
    request = land(RequestPool(pool_fd), session=7, unique=42)
    (left,) = RequestPool(pool_fd).left()
    assert (left.record, left.session, left.request, left.poisonous) == (-1, 7, request, False)


def test_an_answered_request_is_not_found(pool_fd: int) -> None:
    pool = RequestPool(pool_fd)
    land(pool, 7, 42)
    pool.answered()
    land(pool, 7, 44)
    record = pool.keep(7)
    pool.release(record)
    assert RequestPool(pool_fd).left() == []


def test_pending_requests_survive_with_their_bytes_and_sessions(pool_fd: int) -> None:
    pool = RequestPool(pool_fd)
    kept = {}
    for unique in range(2, 22, 2):
        request = land(pool, unique % 3, unique, os.urandom(40))
        kept[pool.keep(unique % 3)] = (unique % 3, request)
    assert {left.record: (left.session, left.request) for left in RequestPool(pool_fd).left()} == kept


def test_a_full_pool_says_so_and_has_room_again_after_an_answer(pool_fd: int) -> None:
    pool = RequestPool(pool_fd)
    records = []
    while not pool.full:
        land(pool, 1, 2)
        records.append(pool.keep(1))
    assert len(records) == PENDING_RECORDS
    pool.release(records[0])
    assert not pool.full
    assert not RequestPool(pool_fd).full


def test_only_what_was_being_processed_is_blamed_for_a_death(pool_fd: int) -> None:
    pool = RequestPool(pool_fd)
    land(pool, 1, 2)
    waiting = pool.keep(1)
    land(pool, 1, 4)
    killer = pool.keep(1)
    for _death in range(MAX_DEATHS):
        successor = RequestPool(pool_fd)
        left = {found.record: found.poisonous for found in successor.left()}
        assert left == {waiting: False, killer: False}
        successor.begin(killer)
    left = {found.record: found.poisonous for found in RequestPool(pool_fd).left()}
    assert left == {waiting: False, killer: True}


def test_a_landing_request_that_kills_worker_after_worker_is_poisonous(pool_fd: int) -> None:
    pool = RequestPool(pool_fd)
    land(pool, 1, 2)
    poisonous = []
    for _death in range(MAX_DEATHS):
        successor = RequestPool(pool_fd)
        poisonous.append(successor.left()[0].poisonous)
        successor.begin(-1)
    assert poisonous == [False] * (MAX_DEATHS - 1) + [True]
