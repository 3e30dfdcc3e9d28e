"""Readers in processes of their own (`reader.py`): started, watched, killed, and asked to end."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from servers import reader
from servers.node import alive
from servers.reader import State

HANG_S = 60.0
"""A reader that does the same thing for so long hangs: every request has an end long before."""
GONE_S = 8.0
"""A reader that was killed is gone within seconds, whoever serves."""

Expected = dict[str, tuple[int, str]]
"""Path below the mount -> size and sha256 of the file."""


@dataclass(slots=True)
class Running:
    """One reader, and when it was last seen to do something else."""

    name: str
    root: Path
    way: str
    process: subprocess.Popen[str]
    state: State
    seen: tuple[int, str] = (0, "")
    since: float = 0.0

    def __str__(self) -> str:
        return f"reader {self.name} ({self.way} of {self.root.name}, pid {self.process.pid})"

    def problem(self) -> str:
        """What is wrong with it, or nothing."""
        code = self.process.poll()
        if code is not None:
            said = self.process.stdout.read().strip() if self.process.stdout else ""
            how = f"died of {signal.Signals(-code).name} while it did: {self.state.doing}" if code < 0 else said
            return f"{self}: {how}"
        seen = (self.state.rounds, self.state.doing)
        if seen != self.seen:
            self.seen, self.since = seen, time.monotonic()
        elif time.monotonic() - self.since > HANG_S:
            return f"{self}: hangs for {HANG_S:.0f} s in: {self.state.doing}; {where(self.process.pid)}"
        return ""


class Readers:
    """All readers of one test; their files lie in `folder`."""

    def __init__(self, folder: Path, expected: Expected, chance: random.Random) -> None:
        self._folder = folder
        self._chance = chance
        self._expected = folder / "expected.json"
        self._expected.write_text(json.dumps(expected))
        self._count = 0
        self.rounds_of_the_dead = 0
        self.running: list[Running] = []

    def start(self, root: Path, way: str) -> None:
        """One more reader of a mount."""
        self._count += 1
        file = self._folder / f"reader-{self._count}"
        file.write_bytes(bytes(4096))
        arguments = [str(file), str(root), str(self._expected), way, str(self._chance.randrange(1 << 32))]
        command = [sys.executable, "-S", "-E", reader.__file__, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.running.append(Running(str(self._count), root, way, process, State(str(file)), since=time.monotonic()))

    def problems(self) -> list[str]:
        """What went wrong so far."""
        return [problem for one in self.running if (problem := one.problem())]

    def kill_one(self) -> str:
        """SIGKILL any reader and start another in its place; what is wrong when it is not gone soon."""
        victim = self._chance.choice(self.running)
        victim.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            victim.process.wait(GONE_S)
        if alive(victim.process.pid):
            return f"{victim}: killed in {victim.state.doing}, and not gone after {GONE_S:.0f} s; " + where(
                victim.process.pid
            )
        self._bury(victim)
        self.start(victim.root, victim.way)
        return ""

    def stop(self) -> list[str]:
        """Ask all to end when they have finished their round; what went wrong until then."""
        for one in self.running:
            one.state.stop()
        problems = []
        end = time.monotonic() + HANG_S
        for one in self.running:
            try:
                code = one.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                problems.append(f"{one}: does not end; it does: {one.state.doing}; {where(one.process.pid)}")
            else:
                if code:
                    problems.append(one.problem())
        return problems

    @property
    def rounds(self) -> int:
        return self.rounds_of_the_dead + sum(one.state.rounds for one in self.running)

    def close(self) -> None:
        """Whatever happened: nobody reads any more, and nobody is waited for."""
        for one in self.running:
            one.process.kill()
            if one.process.stdout:
                one.process.stdout.close()

    def _bury(self, one: Running) -> None:
        self.running.remove(one)
        self.rounds_of_the_dead += one.state.rounds
        if one.process.stdout:
            one.process.stdout.close()


def where(pid: int) -> str:
    """What the kernel says of a process: its state, and what each thread waits in."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            found.append(f"{state} in {(task / 'wchan').read_text() or '-'}")
    return ", ".join(found) or "gone"


def waiting_in_kernel(pids: list[int]) -> list[str]:
    """Those of the processes that are in D state."""
    return [f"{pid}: {text}" for pid in pids if (text := where(pid)).startswith("D") and os.path.exists(f"/proc/{pid}")]
