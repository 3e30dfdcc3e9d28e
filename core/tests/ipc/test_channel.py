"""Messages of any size and their descriptors arrive whole and in order, and a stopped peer never blocks the sender."""

from __future__ import annotations

import os

import pytest

from stoker.ipc.channel import AsyncChannel, Channel, ChannelClosedError


def test_messages_arrive_in_order_with_their_descriptors() -> None:
    left, right = Channel.pair()
    reader, writer = os.pipe()
    left.send({"op": "first"}, [writer])
    left.send({"op": "second"})
    os.close(writer)
    message, fds = right.recv() or ({}, [])
    os.write(fds[0], b"through")
    assert (message, os.read(reader, 16)) == ({"op": "first"}, b"through")
    assert right.recv() == ({"op": "second"}, [])
    assert right.recv() is None
    for fd in (reader, *fds):
        os.close(fd)
    left.close()
    right.close()


def test_a_message_larger_than_the_socket_buffer_arrives_whole() -> None:
    left, right = Channel.pair()
    big = {"op": "big", "text": "x" * 3_000_000}
    left.send(big)
    assert left.pending
    received = None
    while received is None:
        received = right.recv()
        left.flush()
    assert received[0] == big
    left.close()
    right.close()


def test_the_end_of_the_peer_is_an_error_for_both_directions() -> None:
    left, right = Channel.pair()
    right.close()
    with pytest.raises(ChannelClosedError):
        left.recv()
    with pytest.raises(ChannelClosedError):
        left.send({"op": "lost"})
    left.close()


async def test_async_channel_reports_the_end_to_every_waiter() -> None:
    left, right = Channel.pair()
    channel = AsyncChannel(left)
    right.send({"op": "last"})
    right.close()
    assert await channel.recv() == ({"op": "last"}, [])
    for _ in range(2):
        with pytest.raises(ChannelClosedError):
            await channel.recv()
    channel.send({"op": "dropped"})
