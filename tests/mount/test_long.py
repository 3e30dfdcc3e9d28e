"""The long scenarios (`make e2e`): the demo and each row of the bench, from start to a clean end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.fuse, pytest.mark.store, pytest.mark.timeout(900)]

ROOT = next(parent for parent in Path(__file__).parents if (parent / "pyproject.toml").exists())


def run(*module: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    before = {entry.name for entry in os.scandir("/var/tmp") if entry.name.startswith("stoker-")}
    done = subprocess.run(
        [sys.executable, "-m", *module], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert {entry.name for entry in os.scandir("/var/tmp") if entry.name.startswith("stoker-")} == before
    return done.stdout


def test_the_demo() -> None:
    assert "Every byte was the origin's. Everything is taken away again." in run("bench.demo")


ROWS = {
    "hot_small",
    "small_disk",
    "small_disk_16",
    "list_100k",
    "list_100k_names",
    "first_entry",
    "seq_warm",
    "seq_cold_loopback",
    "cpu_per_gib",
    "seq_cold_link",
    "seq_cold_latency",
    "seq_cold_far",
    "amplification_256k",
    "amplification_4k",
    "amplification_mmap_4k",
    "preload_large",
    "preload_small",
    "list_source",
}


def test_every_row_of_the_bench() -> None:
    lines = run("bench", "--quick").splitlines()
    assert {line.partition(":")[0] for line in lines} >= ROWS
