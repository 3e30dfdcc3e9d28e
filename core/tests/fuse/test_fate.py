"""Whether a reader with a pending signal dies of it, as /proc tells: asked of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stoker.fuse.fate import is_dying

READY = "import signal, sys; {}; print('ready', flush=True); signal.sigwait([signal.SIGUSR2])"
HANDLES = "signal.signal({0}, lambda *_: None)"
IGNORES = "signal.signal({0}, signal.SIG_IGN)"
BLOCKS = "signal.pthread_sigmask(signal.SIG_BLOCK, [{0}])"
DEFAULT = "signal.signal({0}, signal.SIG_DFL)"


@contextmanager
def pending(number: int, code: str) -> Iterator[int]:
    """A process that is stopped and so keeps a signal pending."""
    command = [sys.executable, "-S", "-c", READY.format(code.format(int(number)))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        process.send_signal(number)
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGTERM, signal.SIGCHLD, signal.SIGQUIT])
@pytest.mark.parametrize("code", [HANDLES, IGNORES, BLOCKS])
def test_a_signal_that_is_handled_ignored_or_blocked_ends_nobody(number: int, code: str) -> None:
    with pending(number, code) as pid:
        assert not is_dying(pid)


@pytest.mark.parametrize("number", [signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGTSTP])
def test_nor_one_that_is_harmless_by_default(number: int) -> None:
    with pending(number, DEFAULT) as pid:
        assert not is_dying(pid)


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGQUIT, signal.SIGUSR1])
def test_others_do(number: int) -> None:
    with pending(number, DEFAULT) as pid:
        assert is_dying(pid)


def test_who_cannot_be_looked_at_is_not_waited_for() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert is_dying(0)
    assert is_dying(gone.pid)
    assert not is_dying(os.getpid())
