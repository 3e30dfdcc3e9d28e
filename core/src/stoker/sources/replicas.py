"""A source and its identical copies elsewhere: listed and read at the first that answers.

A copy answers for a version only with the same etag and size, so copies that differ give SourceChanged and never other
bytes. What the copies give is cached apart from what the source alone gives: else whoever names a copy could put its
bytes under the name of somebody else's bucket.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from stoker.api.reasons import Reason
from stoker.sources.base import ObjectEntry, ObjectVersion, Source, SourceError

_NEXT_AFTER = frozenset(
    {
        Reason.SourceUnavailable,
        Reason.Throttled,
        Reason.AccessDenied,
        Reason.CredentialsMissing,
        Reason.CredentialsExpired,
        Reason.BucketNotFound,
        Reason.Archived,
    }
)
"""What another copy may be better at. A version that is gone, or a wrong answer, is for the caller to judge."""


class ReplicatedSource:
    """The first of `copies` names the keys; the others have the same ones below their own prefix."""

    def __init__(self, copies: Sequence[Source]) -> None:
        self._copies = list(copies)
        first = copies[0]
        names = "\n".join(f"{copy.origin} {copy.prefix.hex()}" for copy in copies)
        self.origin = f"{first.origin}+{hashlib.sha256(names.encode()).hexdigest()[:16]}"
        self.prefix = first.prefix

    async def list(self) -> AsyncGenerator[list[ObjectEntry], None]:
        for copy in self._copies:
            begun = False
            try:
                async with contextlib.aclosing(copy.list()) as pages:
                    async for page in pages:
                        begun = True
                        yield [replace(entry, key=_moved(entry.key, copy.prefix, self.prefix)) for entry in page]
                return
            except SourceError as error:
                # A listing is of one copy: what was given out cannot be taken back.
                if begun or error.reason not in _NEXT_AFTER or copy is self._copies[-1]:
                    raise

    async def head(self, key: bytes) -> ObjectEntry:
        for copy in self._copies:
            try:
                entry = await copy.head(_moved(key, self.prefix, copy.prefix))
            except SourceError as error:
                if error.reason not in _NEXT_AFTER or copy is self._copies[-1]:
                    raise
            else:
                return replace(entry, key=key)
        raise AssertionError("there is at least one copy")

    async def read(self, version: ObjectVersion, start: int, stop: int) -> AsyncGenerator[memoryview, None]:
        """Goes on at the next copy from where one failed: all give bytes of the same version."""
        for copy in self._copies:
            there = replace(version, key=_moved(version.key, self.prefix, copy.prefix))
            try:
                async with contextlib.aclosing(copy.read(there, start, stop)) as pieces:
                    async for piece in pieces:
                        start += len(piece)
                        yield piece
                return
            except SourceError as error:
                if error.reason not in _NEXT_AFTER or copy is self._copies[-1]:
                    raise

    async def close(self) -> None:
        for copy in self._copies:
            await copy.close()


def _moved(key: bytes, prefix: bytes, to: bytes) -> bytes:
    """The same name below another prefix; the object that a uri itself names is the prefix without its slash."""
    return to + key[len(prefix) :] if key.startswith(prefix) else to[:-1]
