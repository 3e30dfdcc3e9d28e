"""All opens of a file share one mode and one backing id, and the table is right again after any holder's death."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.fuse import opens
from stoker.fuse.opens import OpenTable, create_table


class Kernel:
    """Backing ids of one connection: given out in order, never twice (idr_alloc_cyclic)."""

    def __init__(self) -> None:
        self.last = 0
        self.open: set[int] = set()

    def take(self) -> int:
        self.last += 1
        self.open.add(self.last)
        return self.last

    def close(self, backing: int) -> None:
        self.open.discard(backing)


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def table(kernel: Kernel) -> Iterator[OpenTable]:
    table = OpenTable(create_table(), kernel.close)
    yield table
    table.close()


def test_the_first_open_decides_the_mode_and_the_last_release_gives_the_backing_id_back(
    table: OpenTable, kernel: Kernel
) -> None:
    assert table.open(2, 10, kernel.take).backing == 1
    assert table.open(4, 10, kernel.take).backing == 1
    assert table.passthrough_inodes() == [10]
    table.release(2)
    assert kernel.open == {1}
    table.release(4)
    assert kernel.open == set()
    assert table.passthrough_inodes() == []
    assert table.open(6, 10, lambda: 0).backing == 0


def test_a_file_opened_in_cached_mode_stays_so_until_all_close(table: OpenTable) -> None:
    table.open(2, 10, lambda: 0)
    assert table.open(4, 10, lambda: 7).backing == 0


def test_replays_change_nothing(table: OpenTable, kernel: Kernel) -> None:
    first = table.open(2, 10, kernel.take)
    assert table.open(2, 10, kernel.take) == first
    assert kernel.open == {1}
    for _ in range(2):
        table.release(2)
        assert not table.has(2)
        assert kernel.open == set()


def test_two_mappings_see_each_other(table: OpenTable) -> None:
    other = OpenTable(os.dup(table._fd))
    table.open(2, 10, lambda: 5)
    assert other.open(4, 10, lambda: 99).backing == 5
    other.close()


class DiedError(Exception):
    """The holder is killed at this step."""


class DyingWords:
    """The shared words for a holder that dies at its n-th store."""

    def __init__(self, words: memoryview, stores: int) -> None:
        self._words, self._left = words, stores

    def __getitem__(self, at: int) -> int:
        return self._words[at]

    def __setitem__(self, at: int, value: int) -> None:
        if not self._left:
            raise DiedError
        self._left -= 1
        self._words[at] = value


@pytest.mark.parametrize("stores", range(16))
@pytest.mark.parametrize("change", ["open", "open another", "release"])
def test_a_holder_that_dies_at_any_step_leaks_no_backing_id(kernel: Kernel, change: str, stores: int) -> None:
    """The one after it counts right, whatever the dead one had written and taken."""
    fd = create_table()
    table = OpenTable(os.dup(fd), kernel.close)
    table.open(2, 10, kernel.take)
    dying = OpenTable(os.dup(fd), kernel.close)
    words = DyingWords(dying._words, stores)
    dying._words = dying._handles.words = dying._inodes.words = words  # type: ignore[assignment]
    with contextlib.suppress(DiedError):
        match change:
            case "open":
                dying.open(4, 11, kernel.take)
            case "open another":
                dying.open(4, 10, kernel.take)
            case "release":
                dying.release(2)
    for handle in (4, 2):
        table.release(handle)
    assert kernel.open == set()
    assert table.passthrough_inodes() == []
    assert table.open(6, 10, lambda: 0).backing == 0
    os.close(fd)


def test_a_backing_id_that_was_taken_and_never_entered_is_closed(table: OpenTable, kernel: Kernel) -> None:
    def dies() -> int:
        kernel.take()
        raise DiedError

    table.open(2, 10, kernel.take)
    for handle in (4, 6):
        with pytest.raises(DiedError):
            table.open(handle, 11, dies)
    table.release(2)
    assert kernel.open == set()


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
            if at is not None:
                model[at].discard(unique)
                if not model[at]:
                    del model[at]
            table.release(unique)
        assert sorted(table.passthrough_inodes()) == sorted(model)
    table.close()


def test_many_releases_leave_no_long_probe_sequences(table: OpenTable) -> None:
    for unique in range(2, 2 * 2000, 2):
        table.open(unique, 10 + unique % 7, lambda: 0)
        table.release(unique)
    assert table._handles.used() == []
    gone = sum(table._words[table._handles.word(slot)] == opens._GONE for slot in range(opens.HANDLES))
    assert gone == 0
