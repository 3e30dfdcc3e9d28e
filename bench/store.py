"""The object store of the bench and the demo: one bucket of a SeaweedFS of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from obstore.store import S3Store

from bench.cpu import cpu_seconds, pids_in
from servers.seaweedfs import ADMIN, SeaweedFS, running_seaweedfs

_PIECE = 8 << 20
_REGION = "us-east-1"


@dataclass(frozen=True)
class Store:
    """A bucket, for obstore and for Stoker; `way` is the address where it is asked, the server's own unless said."""

    server: SeaweedFS
    bucket: str
    way: str = ""

    @property
    def endpoint(self) -> str:
        return self.way or self.server.endpoint

    @property
    def port(self) -> int:
        """Of the server itself, on 127.0.0.1."""
        return int(self.server.endpoint.rpartition(":")[2])

    def by(self, host: str, port: int) -> Store:
        """The same, asked at another address that leads there."""
        return replace(self, way=f"http://{host}:{port}")

    def cpu_seconds(self) -> float:
        """What its processes have used so far."""
        return cpu_seconds(pids_in(self.server.folder))

    def warm(self) -> None:
        """What it keeps is in memory again, after caches were dropped."""
        for path in self.server.folder.rglob("*.dat"):
            with path.open("rb", buffering=0) as file:
                while file.read(_PIECE):
                    pass

    def open(self) -> S3Store:
        """The same bucket for obstore."""
        return S3Store(
            self.bucket,
            endpoint=self.endpoint,
            region=_REGION,
            access_key_id=ADMIN[0],
            secret_access_key=ADMIN[1],
            client_options={"allow_http": True},
        )

    def source(self, prefix: str) -> dict[str, Any]:
        """What stands in `spec.sources` for what is below a prefix."""
        uri = f"s3://{self.bucket}/{prefix}/" if prefix else f"s3://{self.bucket}/"
        return {"name": prefix or "all", "uri": uri, "endpoint": self.endpoint, "region": _REGION}

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
