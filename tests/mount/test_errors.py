"""The table of errors in docs/SEMANTICS.md, where no other test on a mount has the row already."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from servers.mounts import IMPATIENT, error_number, mount
from servers.node import Node
from servers.scenarios import refuses, with_headers
from servers.scripted_store import ScriptedStore

pytestmark = pytest.mark.fuse


@pytest.mark.parametrize("policy", ["Cache", "WholeFile"])
def test_an_archived_object_is_shown_and_refused(node: Node, scripted_store: ScriptedStore, policy: str) -> None:
    """With WholeFile at open, else at the first read; and the store is not asked for it."""
    scripted_store.put("cold", b"x" * 1000, storage_class="GLACIER")
    scripted_store.put("warm", b"y" * 1000)
    root = mount(node, scripted_store, cache={"policy": policy})
    assert (root / "cold").stat().st_size == 1000
    assert error_number(root / "cold") == errno.EACCES
    assert (root / "warm").read_bytes() == b"y" * 1000
    assert scripted_store.count("cold", "GET") == 0


def test_expired_credentials_are_eacces(node: Node, scripted_store: ScriptedStore) -> None:
    scripted_store.put("f", b"x" * 1000)
    scripted_store.on("f", refuses(403, "ExpiredToken"))
    root = mount(node, scripted_store, mount=IMPATIENT)
    assert error_number(root / "f") == errno.EACCES
    assert "CredentialsExpired" in node.log()


def test_a_source_with_nothing_to_compare_is_never_cached(node: Node, scripted_store: ScriptedStore) -> None:
    scripted_store.put("f", b"x" * 1000, etag="")
    scripted_store.on("f", with_headers(ETag=None))
    root = mount(node, scripted_store)
    assert (root / "f").read_bytes() == b"x" * 1000
    assert node.status()["cachedBytes"] == 0


TOUCH = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    print(mapped[0])
"""


@pytest.mark.parametrize("policy", ["Cache", "Bypass"])
def test_a_failure_is_waited_for_once_however_often_the_kernel_asks(
    node: Node, scripted_store: ScriptedStore, policy: str
) -> None:
    """A fault of mmap asks for what the kernel reads ahead, then for the page: both are the same failure."""
    scripted_store.put("f", b"x" * 80_000)
    scripted_store.on("f", refuses(500, "InternalError"))
    root = mount(node, scripted_store, mount={**IMPATIENT, "retries": 2}, cache={"policy": policy})
    assert subprocess.run([sys.executable, "-c", TOUCH, str(root / "f")]).returncode == -signal.SIGBUS
    assert scripted_store.count("f", "GET") == 3


def test_through_mmap_an_error_is_sigbus(node: Node, scripted_store: ScriptedStore, scratch: Path) -> None:
    scripted_store.put("f", b"x" * 1000)
    scripted_store.on("f", refuses(403, "AccessDenied"))
    root = mount(node, scripted_store, mount=IMPATIENT)
    done = subprocess.run(
        [sys.executable, "-c", TOUCH, str(root / "f")], capture_output=True, timeout=60, check=False, cwd=scratch
    )
    assert done.returncode == -signal.SIGBUS
