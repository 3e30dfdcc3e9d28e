"""All opens of a file share one mode and one backing id, and the table is right again after any holder's death."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.fuse import opens
from stoker.fuse.opens import OpenTable, create_table


@pytest.fixture
def table() -> Iterator[OpenTable]:
    table = OpenTable(create_table())
    yield table
    table.close()


def test_the_first_open_decides_the_mode_and_the_last_release_gives_the_backing_id_back(table: OpenTable) -> None:
    assert table.open(2, 10, lambda: 5).backing == 5
    assert table.open(4, 10, lambda: 99).backing == 5
    assert table.passthrough_inodes() == [10]
    assert table.release(2) == 0
    assert table.release(4) == 5
    assert table.passthrough_inodes() == []
    assert table.open(6, 10, lambda: 0).backing == 0


def test_a_file_opened_in_cached_mode_stays_so_until_all_close(table: OpenTable) -> None:
    table.open(2, 10, lambda: 0)
    assert table.open(4, 10, lambda: 7).backing == 0


def test_replays_change_nothing(table: OpenTable) -> None:
    first = table.open(2, 10, lambda: 5)
    assert table.open(2, 10, lambda: 6) == first
    assert table.release(2) == 5
    assert table.release(2) == 0


def test_two_mappings_see_each_other(table: OpenTable) -> None:
    other = OpenTable(os.dup(table._fd))
    table.open(2, 10, lambda: 5)
    assert other.open(4, 10, lambda: 99).backing == 5
    other.close()


def test_a_holder_that_died_in_mid_change_is_repaired(table: OpenTable) -> None:
    table.open(2, 10, lambda: 5)
    table.open(4, 11, lambda: 0)
    table._words[opens._DIRTY] = 1
    table._words[table._inodes.word(table._inodes.find(10) or 0) + 2] = 17
    table._enter_inode(12, 9)  # entered, but died before its handle was
    assert table.release(2) == 5
    assert table.passthrough_inodes() == []


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(2, 9)), max_size=120))
def test_it_behaves_as_a_dictionary_of_sets(steps: list[tuple[bool, int, int]]) -> None:
    table = OpenTable(create_table())
    model: dict[int, set[int]] = {}
    owner: dict[int, int] = {}
    for is_open, handle, inode in steps:
        unique = handle * 2 + 2
        if is_open and unique not in owner:
            backing = table.open(unique, inode, lambda inode=inode: inode + 100).backing
            assert backing == inode + 100
            model.setdefault(inode, set()).add(unique)
            owner[unique] = inode
        elif not is_open:
            at = owner.pop(unique, None)
            expected = 0
            if at is not None:
                model[at].discard(unique)
                if not model[at]:
                    del model[at]
                    expected = at + 100
            assert table.release(unique) == expected
        assert sorted(table.passthrough_inodes()) == sorted(model)
    table.close()


def test_many_releases_leave_no_long_probe_sequences(table: OpenTable) -> None:
    for unique in range(2, 2 * 2000, 2):
        table.open(unique, 10 + unique % 7, lambda: 0)
        table.release(unique)
    assert not any(True for _ in table._handles.keys())  # noqa: SIM118 - not a dict
    gone = sum(table._words[table._handles.word(slot)] == opens._GONE for slot in range(opens.HANDLES))
    assert gone == 0
