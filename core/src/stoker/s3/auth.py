"""Who asks: the access key of a request, after signature, expiry and revocation were checked."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

from aiohttp import web

from stoker.s3.errors import S3Error
from stoker.s3.keys import AccessKey, KeyRing, parse_key
from stoker.s3.request import S3Request
from stoker.s3.sigv4 import EMPTY_SHA256, UNSIGNED, check, claim_of


class Auth:
    """Checks requests of one process."""

    def __init__(self, ring: KeyRing, clock: Callable[[], float] = time.time) -> None:
        self._ring, self._clock = ring, clock

    async def check(self, asked: S3Request, request: web.BaseRequest) -> AccessKey:
        """Raises S3Error."""
        claim, now = claim_of(asked), self._clock()
        key = parse_key(claim.access_key)
        if key is None:
            raise _unknown(claim.access_key)
        check(claim, asked, self._ring.secret_of(key.id), now)
        if self._ring.revoked(key):  # only who has the secret is told what became of it
            raise _unknown(key.id)
        if key.expired(now):
            raise S3Error("ExpiredToken", "The provided key has expired: stoker s3-credentials gives another one.")
        if claim.payload not in (UNSIGNED, EMPTY_SHA256) and asked.method in ("GET", "HEAD"):
            await _check_body(claim.payload, request)
        return key


async def _check_body(claimed: str, request: web.BaseRequest) -> None:
    """A GET has no body, and a signature may cover one all the same."""
    body = await request.read() if request.can_read_body else b""
    if hashlib.sha256(body).hexdigest() != claimed:
        text = "The provided 'x-amz-content-sha256' header does not match what was computed."
        raise S3Error("XAmzContentSHA256Mismatch", text, {"ClientComputedContentSHA256": claimed})


def _unknown(key_id: str) -> S3Error:
    text = "The AWS Access Key Id you provided does not exist in our records."
    return S3Error("InvalidAccessKeyId", text, {"AWSAccessKeyId": key_id})
