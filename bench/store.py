"""The object store of the bench and the demo: one bucket of a SeaweedFS of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from obstore.store import S3Store

from servers.seaweedfs import ADMIN, SeaweedFS, running_seaweedfs

_REGION = "us-east-1"


@dataclass(frozen=True)
class Store:
    """A bucket, for obstore and for Stoker."""

    server: SeaweedFS
    bucket: str

    def open(self) -> S3Store:
        """The same bucket for obstore."""
        return S3Store(
            self.bucket,
            endpoint=self.server.endpoint,
            region=_REGION,
            access_key_id=ADMIN[0],
            secret_access_key=ADMIN[1],
            client_options={"allow_http": True},
        )

    def source(self, prefix: str) -> dict[str, Any]:
        """What stands in `spec.sources` for what is below a prefix."""
        uri = f"s3://{self.bucket}/{prefix}/" if prefix else f"s3://{self.bucket}/"
        return {"name": prefix or "all", "uri": uri, "endpoint": self.server.endpoint, "region": _REGION}

    @property
    def environment(self) -> dict[str, str]:
        """What a user of the `stoker` command would have set."""
        return {"AWS_ACCESS_KEY_ID": ADMIN[0], "AWS_SECRET_ACCESS_KEY": ADMIN[1]}

    @property
    def credentials(self) -> dict[str, str]:
        """The same for the admin API."""
        return {"kind": "static", "access_key": ADMIN[0], "secret_key": ADMIN[1]}


@contextlib.contextmanager
def running_store(folder: Path) -> Iterator[Store]:
    """A server with its data in `folder`; both sides find its pages in memory."""
    with running_seaweedfs(folder) as server:
        yield Store(server, server.new_bucket("data"))
