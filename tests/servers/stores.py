"""The same few verbs over a bucket of a real S3 server and over a local folder, so that one test serves both."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO, Protocol


class Store(Protocol):
    """Objects by key below one uri."""

    kind: str

    def put(self, key: str, data: bytes) -> None: ...
    def delete(self, key: str) -> None: ...
    def mtime(self, key: str) -> float: ...
    def source(self, below: str = "") -> dict[str, Any]:
        """What stands in `spec.sources` for everything, or for what is below a prefix (or is one object)."""
        ...


class FolderStore:
    """A local folder."""

    kind = "file"

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def put(self, key: str, data: bytes) -> None:
        """Like an object store: a new version replaces the old one whole."""
        path = self._root / key
        if key.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._root.parent / "put.new"
        temporary.write_bytes(data)
        os.replace(temporary, path)

    def delete(self, key: str) -> None:
        (self._root / key).unlink()

    def mtime(self, key: str) -> float:
        return (self._root / key).stat().st_mtime

    def source(self, below: str = "") -> dict[str, Any]:
        return {"uri": f"file://{self._root}/{below}"}


class BucketStore:
    """A bucket of an S3 server, filled by boto3."""

    kind = "s3"

    def __init__(self, client: Any, bucket: str, endpoint: str) -> None:
        self._client, self._bucket, self._endpoint = client, bucket, endpoint

    def put(self, key: str, data: bytes | BinaryIO) -> None:
        self._client.put_object(Bucket=self._bucket, Key=key, Body=data)

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=self._bucket, Key=key)

    def mtime(self, key: str) -> float:
        return float(self._client.head_object(Bucket=self._bucket, Key=key)["LastModified"].timestamp())

    def source(self, below: str = "") -> dict[str, Any]:
        return {"uri": f"s3://{self._bucket}/{below}", "endpoint": self._endpoint, "region": "us-east-1"}
