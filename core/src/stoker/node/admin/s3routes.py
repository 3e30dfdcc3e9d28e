"""Keys for the S3 endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from stoker.api.base import Count, Model
from stoker.api.reasons import Reason
from stoker.node.admin.orders import FullName
from stoker.node.admin.route import Asked, Nothing, Route

if TYPE_CHECKING:
    from stoker.node.daemon import Daemon


class KeyOrder(Model):
    """Keys of one reader to one DataSet."""

    data_set: FullName
    """A mounted one: `name` or `namespace/name`."""
    reader: Annotated[str, Field(max_length=1024)] = ""
    """Whose they are; the node's user when empty."""
    expires_seconds: Count = 0
    """How long they are good; 0: until they are revoked."""
    bypass: bool = False
    """Reads with them go to the source, and nothing is stored."""


class Keys(Model):
    """Keys, and where they open what."""

    endpoint: str
    region: str
    bucket: str
    data_set: str
    reader: str
    access_key_id: str
    secret_access_key: str
    expires: int
    """Seconds since 1970; 0: never."""
    bypass: bool


class Revoked(Model):
    """No process takes the key any more."""

    revoked: str
    """The access key id."""
    reader: str


async def grant(daemon: Daemon, asked: Asked[Nothing, KeyOrder]) -> dict[str, Any]:
    return daemon.endpoint.grant(daemon.sessions, asked.body.model_dump(by_alias=True))


async def revoke(daemon: Daemon, asked: Asked[Nothing, Nothing]) -> dict[str, Any]:
    return daemon.endpoint.revoke(asked.path["id"])


ROUTES: tuple[Route[Any, Any], ...] = (
    Route(
        *("POST", "/v1/s3/credentials", grant, "Keys to read a mounted DataSet by S3.", Keys),
        body=KeyOrder,
        errors=(Reason.S3Disabled, Reason.NotMounted),
    ),
    Route(
        *("DELETE", "/v1/s3/credentials/{id}", revoke, "End keys by their access key id.", Revoked),
        errors=(Reason.S3Disabled,),
    ),
)
