"""Fixtures for tests on real mounts: a node of its own, and stores to fill."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.node import Node, running_node
from servers.s3 import admin_of, serving_node
from servers.scripted_store import ScriptedStore
from servers.seaweedfs import ADMIN, SeaweedFS
from servers.stores import BucketStore, FolderStore, Store


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A short folder: the path of a unix socket has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="stk-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def node(scratch: Path) -> Iterator[Node]:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("FUSE is not allowed here")
    keys = {"AWS_ACCESS_KEY_ID": ADMIN[0], "AWS_SECRET_ACCESS_KEY": ADMIN[1]}
    with running_node(scratch, STOKER_FUSE_WORKERS="2", **keys) as node:
        yield node


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, scratch: Path) -> Store:
    """A local folder and a bucket in turn."""
    if request.param == "file":
        return FolderStore(scratch / "origin")
    found: Store = request.getfixturevalue("bucket")
    return found


@pytest.fixture
def bucket(seaweedfs: SeaweedFS) -> BucketStore:
    """A fresh bucket."""
    return BucketStore(seaweedfs.client(), seaweedfs.new_bucket(), seaweedfs.endpoint)


@pytest.fixture(scope="module")
def s3_shared() -> Iterator[Node]:
    """One node that serves S3, for the tests of a file that neither stop nor kill it."""
    folder = Path(tempfile.mkdtemp(prefix="stk-"))
    with _serving(folder) as node:
        yield node
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def s3_node(s3_shared: Node) -> Iterator[Node]:
    """The same, with nothing mounted."""
    yield s3_shared
    admin = admin_of(s3_shared)
    for mount in admin.status()["mounts"]:
        admin.unmount(mount["mountpoint"], force=True)


@pytest.fixture
def s3_own(scratch: Path) -> Iterator[Node]:
    """A node that serves S3 for one test."""
    with _serving(scratch) as node:
        yield node


@contextlib.contextmanager
def _serving(folder: Path) -> Iterator[Node]:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("FUSE is not allowed here")
    with serving_node(folder, AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any") as node:
        yield node


@pytest.fixture
def s3_store(scripted_store: ScriptedStore) -> ScriptedStore:
    """What the S3 endpoint is asked for."""
    scripted_store.put("big", os.urandom(20_000_005))
    scripted_store.put("d/small", b"hello")
    scripted_store.put("down", b"not to be had")
    scripted_store.put("empty", b"")
    return scripted_store


@pytest.fixture
def filled(scripted_store: ScriptedStore) -> ScriptedStore:
    for key in ("modified", "removed", "stays"):
        scripted_store.put(key, os.urandom(100_000))
    return scripted_store
