"""The warm template: imports everything once, opens nothing, has one thread, and forks the other processes.

Forked from here a dead worker is back in milliseconds. A child forked from a process that has used obstore or LMDB
hangs (their threads and locks are not there any more), so this process only ever imports them.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
from types import TracebackType
from typing import Any

from stoker.ipc.channel import Channel, ChannelClosedError
from stoker.node.plainlog import PlainLog


def serve(channel: Channel) -> None:
    """Fork a child for each `fork` message until the supervisor is gone."""
    from stoker.node.roles import run_role, warm_up

    warm_up()
    gc.collect()
    gc.freeze()  # what is loaded now is never written by the collector, so children share its memory
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    with contextlib.suppress(ChannelClosedError):
        while True:
            poll.poll(1000)
            _reap()
            while (item := channel.recv()) is not None:
                message, fds = item
                pid = os.fork()
                if pid == 0:
                    _child(channel, message, fds, run_role)
                _answer(channel, message, fds, pid)


def threads() -> int:
    """How many threads this process has; a fork is safe only with one."""
    return len(os.listdir("/proc/self/task"))


def _answer(channel: Channel, message: dict[str, Any], fds: list[int], pid: int) -> None:
    # The child cannot be reaped before this: its id is its own when the pidfd is made.
    pidfd = os.pidfd_open(pid)
    for fd in fds:
        os.close(fd)
    channel.send({"op": "forked", "role": message["role"], "index": message["index"], "threads": threads()}, [pidfd])
    os.close(pidfd)


def _child(channel: Channel, message: dict[str, Any], fds: list[int], run_role: Any) -> None:
    code = 1
    try:
        channel.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        run_role(message["role"], message["index"], message["config"], fds[0])
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        PlainLog(f"{message['role']}-{message['index']}").failed(*_failure())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _failure() -> tuple[type[BaseException], BaseException, TracebackType | None]:
    kind, error, trace = sys.exc_info()
    assert kind is not None
    assert error is not None
    return kind, error, trace


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches the whole group; the supervisor decides
    import socket

    sys.excepthook = PlainLog("template-0").failed
    serve(Channel(socket.socket(fileno=int(sys.argv[1]))))
