"""Ranged reads of S3 objects by obstore (Rust), checked as those of our own requests are.

obstore checks what Content-Range says; what it does not compare (etag, total length) is compared here. Its faults come
as text: the status and the error code are found in there.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store
from yarl import URL

from stoker.api.reasons import Reason
from stoker.sources import answered
from stoker.sources.base import SourceError
from stoker.sources.checked import Wanted, is_encoded
from stoker.sources.credentials import Keys
from stoker.sources.http_client import CONNECT_TIMEOUT_S, STALL_TIMEOUT_S, proxy_of
from stoker.sources.s3_errors import Refusal
from stoker.sources.s3_location import Location
from stoker.sources.s3_requests import S3Requests
from stoker.sources.text import etag_of, is_weak

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig, S3Credential

_WHOLE_TIMEOUT_S = 600  # the deadline of a read is its caller's; this one only ends what everybody forgot
_STATUS = re.compile(r"status code: (\d{3})\b")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WRONG_ANSWERS = ("non-partial response", "Requested ", "Content-Range", "CONTENT_RANGE header", "Header missing")
_FAULTS = (BaseError, OSError, ValueError)
_NOWHERE = "127.0.0.1:0"  # no one can listen there: what is sent that way stays here


def expressible(key: bytes) -> bool:
    """Whether obstore sends exactly this key: not with control characters, nor with components that a path has not."""
    try:
        text = key.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return not (_CONTROL.search(text) or {"", ".", ".."} & set(text.split("/")))


class ObstoreReader:
    """obstore's client of one bucket, made anew when region or keys change."""

    def __init__(self, requests: S3Requests) -> None:
        self._requests = requests
        self._store: S3Store | None = None
        self._region = ""

    @property
    def safe(self) -> bool:
        """Whether no redirect can make it send a session token elsewhere: its client follows every redirect, takes only
        the signature off for another host, and the one way to hold it back (`_fence`) needs its place for a proxy."""
        ring = self._requests.ring
        return not ring.may_have_token or proxy_of(self._requests.location.base) is None

    async def read(self, wanted: Wanted, piece: int) -> AsyncGenerator[memoryview, None]:
        """The pieces, checked. One request, and one more where the region was wrong or a profile's keys expired.

        Of an encoded body none comes before its end: obstore does not show its length, which alone tells whether these
        are the stored bytes or others that were made of them on the way."""
        result = await self._get(wanted)
        left = wanted.stop - wanted.start
        if left < piece:
            yield await _whole(result, wanted)
            return
        hold = is_encoded(result.attributes.get("Content-Encoding"))
        held: list[memoryview] = []
        try:
            async for part in result.stream(min_chunk_size=piece):
                view = memoryview(part)
                left -= len(view)
                if left < 0:
                    break
                if hold:
                    held.append(view)
                else:
                    yield view
        except (BaseError, OSError) as error:
            raise _broken(error, wanted) from None
        wanted.ended(left)
        for view in held:
            yield view

    async def _get(self, wanted: Wanted) -> Any:
        try:
            return await self._once(wanted)
        except _FAULTS as error:
            if not await self._mended(error, wanted):
                raise self._refused(error, wanted) from None
        try:
            return await self._once(wanted)
        except _FAULTS as error:
            raise self._refused(error, wanted) from None

    async def _once(self, wanted: Wanted) -> Any:
        options: GetOptions = {"range": (wanted.start, wanted.stop)}
        etag = wanted.version.etag
        if etag and not is_weak(etag):
            options["if_match"] = f'"{etag}"'
        store = await self._opened()
        try:
            result = await obstore.get_async(store, wanted.version.key.decode(), options=options)
        except _FAULTS as error:
            if (status := _STATUS.search(str(error))) is not None:
                answered.tell(int(status[1]))
            raise
        answered.tell(200)
        meta = result.meta
        start, stop = result.range
        modified = int(meta["last_modified"].timestamp()) * 1_000_000_000
        wanted.check(start, stop, meta["size"], etag_of(meta["e_tag"]), modified)
        return result

    async def _mended(self, error: Exception, wanted: Wanted) -> bool:
        """Whether a second try is another one: a region that was not known, keys that were renewed."""
        text = str(error)
        # A bucket that is new, or was asked for in a wrong region, may be answered by a redirect to its own host.
        if _NOWHERE in text or "incorrectly configured region" in text or "AuthorizationHeaderMalformed" in text:
            return await self._requests.find_region()
        ring = self._requests.ring
        if ring.renewable and self._refused(error, wanted).reason in (Reason.CredentialsExpired, Reason.AccessDenied):
            ring.renew()
            self._store = None
            return True
        return False

    async def _opened(self) -> S3Store:
        location, ring = self._requests.location, self._requests.ring
        if self._store is None or self._region != location.region:
            # Asked here first, so that what is wrong with a profile is said in our words.
            keys = await ring.keys()
            self._region = location.region
            self._store = _store(location, keys, ring.keys, fenced=ring.may_have_token)
        return self._store

    def _refused(self, error: Exception, wanted: Wanted) -> SourceError:
        """The reason, out of obstore's words."""
        text, _, debug = str(error).partition("Debug source")
        if _NOWHERE in debug:
            return _leads_away(wanted)
        status = _STATUS.search(text)
        if status is not None:
            return wanted.gone(Refusal(int(status[1]), text, wanted.place, self._requests.ring.identity).error())
        if any(words in text for words in _WRONG_ANSWERS):
            return wanted.corrupt(text.partition("error: ")[2].strip() or text.strip())
        return _unavailable(error, wanted)


def _store(
    location: Location, keys: Keys | None, renewed: Callable[[], Awaitable[Keys | None]], *, fenced: bool
) -> S3Store:
    async def provide() -> S3Credential:
        given = await renewed()
        assert given is not None, "a key ring that once had keys"
        return {
            "access_key_id": given.access_key,
            "secret_access_key": given.secret_key,
            "token": given.token or None,
            "expires_at": given.expires,
        }

    # All that obstore would else take from the environment of the node is said here.
    return S3Store(
        location.bucket,
        endpoint=location.endpoint if location.path_style else location.base,
        region=location.region,
        virtual_hosted_style_request=not location.path_style,
        skip_signature=keys is None,
        credential_provider=provide if keys is not None else None,
        client_options=client_options(location.base, fenced=fenced),
        retry_config={"max_retries": 0},
    )


def client_options(base: str, *, fenced: bool) -> ClientConfig:
    # No Accept-Encoding: obstore would sign it, and front ends that rewrite it (those of GCS and Cloudflare) would make
    # the signature a wrong one. What is compressed unasked is found by its length.
    options: ClientConfig = {
        # Nor does a redirect lead from https to a connection that anybody can read.
        "allow_http": URL(base).scheme == "http",
        "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
        "read_timeout": timedelta(seconds=STALL_TIMEOUT_S),
        "timeout": timedelta(seconds=_WHOLE_TIMEOUT_S),
        "user_agent": "stoker",
    }
    return {**options, **_fence(base)} if fenced else options


def _fence(base: str) -> ClientConfig:
    """All hosts but this one are behind a proxy that is none."""
    return {"proxy_url": f"http://{_NOWHERE}", "proxy_excludes": URL(base).raw_host or ""}


async def _whole(result: Any, wanted: Wanted) -> memoryview:
    """A body that is one piece. A byte more than there should be is asked for, so that the piece ends where the body
    does: to ask whether anything follows is one more way between threads, a tenth of what a small object costs."""
    length = wanted.stop - wanted.start
    try:
        part = await anext(result.stream(min_chunk_size=length + 1), b"")
    except (BaseError, OSError) as error:
        raise _broken(error, wanted) from None
    wanted.ended(length - len(part))
    return memoryview(part)


def _broken(error: Exception, wanted: Wanted) -> SourceError:
    """A body that ended before its end: cut (the store's or the network's fault), or too slow."""
    if "Timeout" in str(error) or "TimedOut" in str(error):
        return _unavailable(error, wanted)
    return wanted.corrupt("the connection ended before the body did")


def _leads_away(wanted: Wanted) -> SourceError:
    return SourceError(
        Reason.SourceUnavailable,
        "the store redirects to another host, which must not get the session token",
        place=wanted.place,
        next_step="name the host that has the objects as `endpoint`.",
        retryable=True,
    )


def _unavailable(error: Exception, wanted: Wanted) -> SourceError:
    cause = "timed out" if "TimedOut" in str(error) else str(error).partition("\n")[0].strip()
    return SourceError(
        Reason.SourceUnavailable,
        f"the store does not answer: {cause}",
        place=wanted.place,
        next_step="check that the endpoint can be reached from this machine.",
        retryable=True,
    )
