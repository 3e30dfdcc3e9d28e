"""Servers that any test may ask for by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.scripted_store import ScriptedStore, running_store
from servers.seaweedfs import SeaweedFS, running_seaweedfs


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """One real S3 server for the whole run; take a `new_bucket()` in each test."""
    with running_seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture
def scripted_store() -> Iterator[ScriptedStore]:
    """A store that misbehaves on demand."""
    with running_store() as store:
        yield store


@pytest.fixture
def elsewhere() -> Iterator[ScriptedStore]:
    """A store on another host: this machine by another name."""
    with running_store() as store:
        store.endpoint = store.endpoint.replace("127.0.0.1", "localhost")
        yield store
