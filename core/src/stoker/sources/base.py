"""What every store offers to the rest: listing as a stream, one head, ranged reads of exactly one object version."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Protocol

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.api.redact import hide, hide_query


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One listed object. `key` is the whole key as the store holds it, byte for byte.

    `etag` has no quotes; "" = none; a weak one is kept whole, as `W/"..."`: it is compared, and never sent.
    """

    key: bytes
    size: int
    etag: str
    mtime_ns: int
    archived: bool = False


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """Exactly one version of one object: what a read must return bytes of, or fail."""

    key: bytes
    size: int
    etag: str
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to get at a store in local mode. Kept in memory only; `repr` shows no secret.

    `kind`: `none` (unsigned), `static` (the keys below), `profile` (botocore resolves and renews `profile` from the
    two files named).
    """

    kind: str = "none"
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    profile: str = ""
    config_file: str = ""
    credentials_file: str = ""

    def __post_init__(self) -> None:
        hide(self.access_key, self.secret_key, self.session_token)

    def to_json(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: dict[str, str]) -> Credentials:
        return cls(**{name: data.get(name, "") for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """One source of a DataSet, resolved: what a process needs to list and read it. `path` starts with `/`."""

    name: str
    uri: str
    path: str = "/"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    ignore_missing: bool = False
    endpoint: str = ""
    region: str = ""
    options: tuple[tuple[str, str], ...] = ()
    replicas: tuple[str, ...] = ()
    credentials: Credentials = Credentials()
    one_file: bool = False
    """The uri names an object, whatever is below it (`type: uri_file`)."""

    def __post_init__(self) -> None:
        for uri in (self.uri, *self.replicas):
            hide_query(uri)

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        data["options"] = dict(self.options)
        data["credentials"] = self.credentials.to_json()
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SourceSpec:
        fields = dict(data)
        for name in ("include", "exclude", "replicas"):
            fields[name] = tuple(fields.get(name, ()))
        fields["options"] = tuple(sorted(dict(fields.get("options", {})).items()))
        fields["credentials"] = Credentials.from_json(fields.get("credentials", {}))
        return cls(**fields)


class SourceError(StokerError):
    """A store refused or failed. `retryable`: another try may succeed; `retry_after_s`: what the store asked for."""

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        place: str = "",
        next_step: str = "",
        retryable: bool = False,
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(reason, message, place=place, next_step=next_step)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


PIECE = 1 << 20
"""Bytes that come at once: smaller ones cost more CPU, larger ones come later (docs/design/limits.md has figures)."""


class Source(Protocol):
    """An open store below one uri. Made by `stoker.sources.open_source(spec)`; used inside one event loop."""

    origin: str
    """What is really contacted, without the prefix: `s3://<endpoint host>/<bucket>`, `https://host`, `file://`.
    Part of each object id, so two stores can never share a cached byte."""

    prefix: bytes
    """Keys of this source start with it; the name on the mount is the rest (docs/SEMANTICS.md, Names).
    It ends in `/` or is empty. One entry may stand outside: the object that the uri itself names, whose key is the
    prefix without that slash. Alone it makes the source one file (`uri_file`, shown by the last component of its key);
    beside keys below it, it is hidden by their directory."""

    def list(self) -> AsyncGenerator[list[ObjectEntry], None]:
        """All objects below the uri as a stream of pages, in no promised order, each key once. Raises SourceError."""
        ...

    async def head(self, key: bytes) -> ObjectEntry:
        """One object. Raises SourceError(SourceNotFound, ...)."""
        ...

    def read(
        self, version: ObjectVersion, start: int, stop: int, piece: int = PIECE
    ) -> AsyncGenerator[memoryview, None]:
        """The bytes [start, stop) of `version`, in pieces, in order, exactly stop - start of them. `piece`: about how
        many bytes one should have.

        One request, no retry. Status, Content-Range, total length and ETag are checked before the first piece, the
        length of the body before the last one ends. Raises SourceError: SourceChanged when the version is gone.
        """
        ...

    async def close(self) -> None: ...
