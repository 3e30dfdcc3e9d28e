"""Fixtures for tests on real mounts: a node of its own, and stores to fill."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.node import Node, running_node
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
