"""A node that serves S3, and clients of it."""

from __future__ import annotations

import contextlib
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from servers.node import Node, data_set, running_node
from servers.scripted_store import ScriptedStore
from stoker.cli.client import AdminClient


@dataclass(frozen=True)
class Keys:
    """What `stoker s3-credentials` gave."""

    endpoint: str
    bucket: str
    key: str
    secret: str

    def client(self, attempts: int = 1) -> Any:
        """A boto3 client that tries each request so often."""
        config = Config(
            signature_version="s3v4", retries={"total_max_attempts": attempts}, connect_timeout=5, read_timeout=30
        )
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.key,
            aws_secret_access_key=self.secret,
            region_name="us-east-1",
            config=config,
        )

    @property
    def env(self) -> dict[str, str]:
        """For other programs."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def admin_of(node: Node) -> AdminClient:
    return AdminClient(str(node.root / "run" / "admin.sock"))


def keys(node: Node, name: str, **order: Any) -> Keys:
    """New keys for a DataSet that is mounted."""
    answer = admin_of(node).s3_key({"dataSet": name, **order})
    return Keys(answer["endpoint"], answer["bucket"], answer["accessKeyId"], answer["secretAccessKey"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
    return port


@contextlib.contextmanager
def serving_node(root: Path, **settings: str) -> Iterator[Node]:
    """Ready for S3 on a free port."""
    with running_node(root, **{"STOKER_FUSE_WORKERS": "2", "STOKER_S3_PORT": str(free_port()), **settings}) as node:
        yield node


def mounted(node: Node, store: ScriptedStore, name: str = "ds", **spec: Any) -> Keys:
    """Keys of a DataSet that is mounted now."""
    node.mount(data_set(name, store.source(), **spec), name)
    return keys(node, name)


def read(keys: Keys, key: str, **more: str) -> bytes:
    body: bytes = keys.client().get_object(Bucket=keys.bucket, Key=key, **more)["Body"].read()
    return body


def refused(call: Any, **arguments: Any) -> str:
    """The code of the error."""
    try:
        call(**arguments)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    raise AssertionError(f"not refused: {arguments}")


def send(keys: Keys, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """A signed request as it is written here, of which no client library has an opinion."""
    request = AWSRequest(
        method, keys.endpoint + path, {name.replace("_", "-"): value for name, value in headers.items()}
    )
    S3SigV4Auth(Credentials(keys.key, keys.secret), "s3", "us-east-1").add_auth(request)
    signed = urllib.request.Request(keys.endpoint + path, method=method, headers=dict(request.headers.items()))
    try:
        with urllib.request.urlopen(signed, timeout=30) as answer:
            return answer.status, dict(answer.headers.items()), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers.items()), error.read()


def from_source(node: Node, name: str = "ds") -> int:
    """Bytes."""
    return int(node.status(name)["bytesFromSource"])
