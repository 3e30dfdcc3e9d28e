"""The template must be safe to fork: importing everything opens nothing and starts no thread."""

from __future__ import annotations

import subprocess
import sys

CHECK = """
import os, sys
before = set(os.listdir("/proc/self/fd"))
from stoker.node.roles import warm_up
warm_up()
from stoker.node.template import threads
assert threads() == 1, f"{threads()} threads"
left = {fd for fd in set(os.listdir("/proc/self/fd")) - before if os.path.exists(f"/proc/self/fd/{fd}")}
assert not left, [os.readlink(f"/proc/self/fd/{fd}") for fd in left]
assert {"obstore", "lmdb", "aiohttp"} <= set(sys.modules), "not warm"
"""


def test_importing_everything_starts_no_thread_and_opens_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
