"""What the keeper holds for a worker that is dead, while descriptors come and go."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from stoker.fuse.hold import Holder
from stoker.fuse.protocol import IN_HEADER, Op
from stoker.fuse.slots import RequestPool, create_pool


@pytest.fixture
def pool_fd() -> Iterator[int]:
    fd = create_pool()
    yield fd
    os.close(fd)


def request(unique: int) -> bytes:
    return IN_HEADER.pack(IN_HEADER.size, Op.READ, unique, 1, 0, 0, 0, 0, 0)


def held(pool_fd: int) -> list[tuple[int, bytes]]:
    return [(left.session, left.request) for left in RequestPool(pool_fd).left()]


def test_a_clone_that_is_told_again_takes_the_place_of_the_first(pool_fd: int) -> None:
    """Everything is told again when a supervisor follows another, and the first copies are closed; others have the
    same clones open all the while, so epoll would go on to report the closed ones."""
    kernel, clone = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    clone.setblocking(False)
    holder = Holder(pool_fd)
    for unique in (2, 4, 6):
        told = os.dup(clone.fileno())
        holder.add(7, told)
        os.close(told)
        kernel.send(request(unique))
        holder.on_readable()
    assert held(pool_fd) == [(7, request(unique)) for unique in (2, 4, 6)]
    holder.remove(7)
    kernel.send(request(8))
    holder.on_readable()
    assert len(held(pool_fd)) == 3
    holder.close()
    kernel.close()
    clone.close()


def test_nothing_of_a_clone_is_left_open_when_it_ends(pool_fd: int) -> None:
    """The kernel ends the requests of a clone when its last holder has closed it."""
    kernel, clone = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    holder = Holder(pool_fd)
    holder.add(7, clone.fileno())
    holder.add(8, clone.fileno())
    clone.close()
    holder.remove(7)
    holder.close()
    assert kernel.recv(1) == b""  # the other side is closed
    kernel.close()


def test_an_older_session_of_the_same_number_takes_nothing_from_a_newer_one(pool_fd: int) -> None:
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    for _kernel, clone in pairs:
        clone.setblocking(False)
    (_, old), (kernel, new) = pairs
    holder = Holder(pool_fd)
    holder.add(7, new.fileno(), made=2)
    holder.add(7, old.fileno(), made=1)
    holder.remove(7, made=1)
    kernel.send(request(2))
    holder.on_readable()
    assert held(pool_fd) == [(7, request(2))]
    holder.close()
    for pair in pairs:
        for end in pair:
            end.close()
