"""HTTP below the sources, by aiohttp: bodies as stored, no cookies, no redirects, faults as SourceError.

Not for deciding what a status means: each store does.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import urllib.request
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
from yarl import URL

from stoker.api.reasons import Reason
from stoker.sources import answered
from stoker.sources.base import SourceError

CONNECT_TIMEOUT_S = 5.0
STALL_TIMEOUT_S = 30.0  # no byte for so long ends a request
_ERROR_BODY = 64 << 10  # as much of an error's body as anybody needs

Headers = Mapping[str, str]


class HttpClient:
    """The connections of one source. Opens none before the first request."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self.answered = False
        """Whether anybody ever answered, whatever was said."""

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, url: str, headers: Headers, place: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response, body unread; faults of the transport in here become SourceError(SourceUnavailable)."""
        # A decoded body would have another length than the one stored (docs/SEMANTICS.md, Content).
        sent = {"Accept-Encoding": "identity", **headers}
        with unavailable(place, url):
            async with self._open().request(
                method, URL(url, encoded=True), headers=sent, allow_redirects=False, proxy=proxy_of(url)
            ) as response:
                self.answered = True
                answered.tell(response.status)
                yield response

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=STALL_TIMEOUT_S)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=30),
                timeout=timeout,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent",),
                headers={"User-Agent": "stoker"},
                max_field_size=64 << 10,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


async def error_body(response: aiohttp.ClientResponse) -> bytes:
    """What the store says about its refusal; empty when it cannot be read."""
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await response.content.read(_ERROR_BODY)
    return b""


@contextlib.contextmanager
def unavailable(place: str, url: str) -> Any:
    """Faults of the transport become one reason; what a store says with a status is not one of them."""
    try:
        yield
    except aiohttp.ClientPayloadError as error:
        raise SourceError(
            Reason.CorruptResponse, f"the body of the response is broken: {error}", place=place, retryable=True
        ) from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        host = URL(url, encoded=True).authority
        raise SourceError(
            Reason.SourceUnavailable,
            f"{host} does not answer: {_cause(error)}",
            place=place,
            next_step=f"check that {host} is right and can be reached from this machine.",
            retryable=True,
        ) from None


def _cause(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return str(error) or type(error).__name__


def proxy_of(url: str) -> str | None:
    """The administrator's proxy on the way to a url."""
    parsed = URL(url, encoded=True)
    return _proxy(parsed.scheme, parsed.host or "")


@functools.lru_cache(maxsize=256)
def _proxy(scheme: str, host: str) -> str | None:
    """The administrator's proxy for a host. Not aiohttp's `trust_env`, which would send passwords of ~/.netrc too."""
    return None if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(scheme)
