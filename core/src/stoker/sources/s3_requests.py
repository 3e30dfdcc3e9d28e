"""Signed requests to one bucket: SigV4 by botocore, the region learnt from the store, refusals as SourceError.

One request and, where the store names another region or the keys of a profile are refused, one more. Not for
retrying what failed for good reasons: listing.py does for pages, fetching does for reads.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Mapping

import aiohttp
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

from stoker.api.reasons import Reason
from stoker.sources.base import SourceError
from stoker.sources.credentials import KeyRing
from stoker.sources.http_client import HttpClient, error_body
from stoker.sources.s3_errors import Refusal, retry_after
from stoker.sources.s3_location import Location
from stoker.sources.text import printable

_REGION_IN_BODY = re.compile(r"<Region>([a-z0-9-]+)</Region>")
_RENEWED_FOR = (Reason.CredentialsExpired, Reason.AccessDenied)


class S3Requests:
    """A bucket, the keys that open it, and the connections to it."""

    def __init__(self, location: Location, ring: KeyRing, client: HttpClient) -> None:
        self.location = location
        self.ring = ring
        self.client = client

    @property
    def answered(self) -> bool:
        return self.client.answered

    def place(self, key: bytes) -> str:
        return f"s3://{self.location.bucket}/{printable(key)}"

    @contextlib.asynccontextmanager
    async def request(
        self,
        method: str,
        key: bytes = b"",
        query: Mapping[str, str | bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        accept: tuple[int, ...] = (200, 206),
        place: str = "",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response with an accepted status. Raises SourceError for any other."""
        place = place or self.place(key)
        renewed = moved = False
        while True:
            url = self.location.url(key, query)
            signed = await self._signed(method, url, headers or {})
            async with self.client.request(method, url, signed, place) as response:
                if response.status in accept:
                    yield response
                    return
                refusal = await self._refusal(response, place, method)
                region = self._region(response, refusal)
            error = refusal.error()
            if not moved and self.location.move_to(region):
                moved = True
            elif not renewed and self.ring.renewable and error.reason in _RENEWED_FOR:
                # A profile's keys are renewed once before anybody is told that they do not open this.
                self.ring.renew()
                renewed = True
            else:
                raise error

    async def _refusal(self, response: aiohttp.ClientResponse, place: str, method: str) -> Refusal:
        body = (await error_body(response)).decode("utf-8", "replace")
        wait = retry_after(response.headers.get("Retry-After"))
        return Refusal(response.status, body, place, self.ring.identity, wait, method)

    @staticmethod
    def _region(response: aiohttp.ClientResponse, refusal: Refusal) -> str:
        """The region that the store names when it was asked in another one; else empty."""
        if response.status not in (301, 307, 400):
            return ""
        in_body = _REGION_IN_BODY.search(refusal.body)
        return response.headers.get("x-amz-bucket-region") or (in_body[1] if in_body else "")

    async def _signed(self, method: str, url: str, headers: Mapping[str, str]) -> dict[str, str]:
        keys = await self.ring.keys()
        if keys is None:
            return dict(headers)
        request = AWSRequest(method, url, headers=dict(headers))
        signing = BotoCredentials(keys.access_key, keys.secret_key, keys.token or None)
        S3SigV4Auth(signing, "s3", self.location.region).add_auth(request)
        return dict(request.headers.items())

    async def find_region(self) -> bool:
        """Ask for the bucket itself where its region is; True when it is another one than thought."""
        before = self.location.region
        with contextlib.suppress(SourceError):
            async with self.request("HEAD", accept=(200, 404)):
                pass
        return self.location.region != before
