"""AWS Signature Version 4, as S3 has it: in the Authorization header, or in the query of a presigned URL. Pure.

The canonical request, the string to sign and the signing key are those of the AWS documentation
(https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html). Any region is accepted.
"""

from __future__ import annotations

import calendar
import functools
import hashlib
import hmac
import re
import time
from dataclasses import dataclass
from urllib.parse import quote_from_bytes

from stoker.s3.errors import S3Error
from stoker.s3.request import S3Request

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
SKEW_S = 15 * 60
"""How far the client's clock may be from ours."""
MOST_EXPIRES_S = 7 * 24 * 3600
"""Of a presigned URL."""

_UNRESERVED = "-_.~"
_PARAMETER = re.compile(r"\s*([A-Za-z]+)=([^,\s]+)\s*")
_DATE = re.compile(r"\d{8}T\d{6}Z")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request claims to be signed with. `expires_s` is 0 unless it is a presigned URL."""

    access_key: str
    scope: str
    signed_headers: tuple[str, ...]
    signature: str
    amz_date: str
    payload: str
    expires_s: int = 0

    @property
    def signed_at(self) -> int:
        """Seconds since 1970."""
        return _seconds(self.amz_date)


@functools.lru_cache(64)  # requests of one second have the same
def _seconds(amz_date: str) -> int:
    return calendar.timegm(time.strptime(amz_date, "%Y%m%dT%H%M%SZ"))


def claim_of(request: S3Request) -> Claim:
    """Raises S3Error for a request that is not signed, or not in a way that is understood."""
    header = request.headers.get("authorization")
    if header is not None:
        if request.param("X-Amz-Algorithm") is not None:
            raise S3Error("InvalidArgument", "Only one auth mechanism allowed.")
        return _from_header(request, header)
    if request.param("X-Amz-Algorithm") is not None:
        return _from_query(request)
    if request.param("Signature") is not None:
        raise _other_mechanism()
    raise S3Error("AccessDenied", "Access Denied. Sign the request: stoker s3-credentials gives keys.")


def check(claim: Claim, request: S3Request, secret: str, now: float) -> None:
    """Raises S3Error when the request is not what the holder of the secret signed, or not any more."""
    _check_time(claim, now)
    text = string_to_sign(claim, canonical_request(claim, request))
    signature = hmac.new(_signing_key(secret, claim.scope), text.encode(), "sha256").hexdigest()
    if not hmac.compare_digest(signature.encode(), claim.signature.encode(errors="replace")):
        message = (
            "The request signature we calculated does not match the signature you provided. "
            "Check your key and signing method."
        )
        fields = {"AWSAccessKeyId": claim.access_key, "SignatureProvided": claim.signature, "StringToSign": text}
        raise S3Error("SignatureDoesNotMatch", message, fields)


def canonical_request(claim: Claim, request: S3Request) -> str:
    """What was signed, from what came."""
    pairs = sorted(
        (quote_from_bytes(name, _UNRESERVED), quote_from_bytes(value, _UNRESERVED))
        for name, value in request.query
        if not (claim.expires_s and name == b"X-Amz-Signature")
    )
    query = "&".join(f"{name}={value}" for name, value in pairs)
    headers = "".join(f"{name}:{request.headers.get(name, '')}\n" for name in claim.signed_headers)
    path = quote_from_bytes(request.path, "/" + _UNRESERVED)
    signed = ";".join(claim.signed_headers)
    return f"{request.method}\n{path}\n{query}\n{headers}\n{signed}\n{claim.payload}"


def string_to_sign(claim: Claim, canonical: str) -> str:
    digest = hashlib.sha256(canonical.encode(errors="surrogateescape")).hexdigest()
    return f"{ALGORITHM}\n{claim.amz_date}\n{claim.scope}\n{digest}"


@functools.lru_cache(1024)  # four of the five HMACs of a request; the same for all of a key's requests of one day
def _signing_key(secret: str, scope: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _check_time(claim: Claim, now: float) -> None:
    signed_at = claim.signed_at
    if not claim.expires_s:
        if abs(now - signed_at) > SKEW_S:
            text = "The difference between the request time and the current time is too large."
            times: dict[str, str | int] = {
                "RequestTime": claim.amz_date,
                "ServerTime": _iso(now),
                "MaxAllowedSkewMilliseconds": SKEW_S * 1000,
            }
            raise S3Error("RequestTimeTooSkewed", text, times)
        return
    if now + SKEW_S < signed_at:
        raise S3Error("AccessDenied", "Request is not valid yet", {"ServerTime": _iso(now)})
    if now > signed_at + claim.expires_s:
        ended = _iso(signed_at + claim.expires_s)
        fields: dict[str, str | int] = {"X-Amz-Expires": claim.expires_s, "Expires": ended, "ServerTime": _iso(now)}
        raise S3Error("AccessDenied", "Request has expired", fields)


def _from_header(request: S3Request, header: str) -> Claim:
    algorithm, _, rest = header.partition(" ")
    if algorithm != ALGORITHM:
        raise _other_mechanism()
    found = dict(_PARAMETER.findall(rest))
    if not {"Credential", "SignedHeaders", "Signature"} <= found.keys():
        raise S3Error(
            "AuthorizationHeaderMalformed",
            "The authorization header is malformed; it needs Credential, SignedHeaders and Signature.",
        )
    date = request.headers.get("x-amz-date", "")
    if not date:
        raise S3Error("AccessDenied", "AWS authentication requires a valid Date or x-amz-date header")
    payload = request.headers.get("x-amz-content-sha256") or EMPTY_SHA256
    code = "AuthorizationHeaderMalformed"
    return _claim(request, code, found["Credential"], found["SignedHeaders"], found["Signature"], date, payload)


def _from_query(request: S3Request) -> Claim:
    code = "AuthorizationQueryParametersError"
    if request.text("X-Amz-Algorithm") != ALGORITHM:
        raise _other_mechanism()
    names = ("X-Amz-Credential", "X-Amz-SignedHeaders", "X-Amz-Signature", "X-Amz-Date", "X-Amz-Expires")
    values = [request.text(name) for name in names]
    credential, signed, signature, date, expires = (value or "" for value in values)
    if not all(values):
        names_text = ", ".join(("X-Amz-Algorithm", *names))
        raise S3Error(code, f"Query-string authentication version 4 requires the {names_text} parameters.")
    if not expires.isascii() or not expires.isdigit() or not 1 <= int(expires) <= MOST_EXPIRES_S:
        raise S3Error(code, f"X-Amz-Expires must be a number of seconds from 1 to {MOST_EXPIRES_S}")
    payload = request.headers.get("x-amz-content-sha256") or UNSIGNED
    return _claim(request, code, credential, signed, signature, date, payload, int(expires))


def _claim(
    request: S3Request,
    code: str,
    credential: str,
    signed: str,
    signature: str,
    date: str,
    payload: str,
    expires_s: int = 0,
) -> Claim:
    access_key, _, scope = credential.partition("/")
    parts = scope.split("/")
    if len(parts) != 4 or parts[2:] != ["s3", "aws4_request"]:
        raise S3Error(code, "The credential is malformed; it must be <key>/<date>/<region>/s3/aws4_request.")
    headers = tuple(signed.lower().split(";"))
    claim = Claim(access_key, scope, headers, signature, date, payload, expires_s)
    if not _DATE.fullmatch(date) or parts[0] != date[:8] or not _is_time(claim):
        raise S3Error(code, "The date of the request is not a date such as 20260131T235959Z, or not the credential's.")
    missing = [name for name in request.headers if name.startswith("x-amz-") and name not in headers]
    if "host" not in headers or missing:
        names = ", ".join(missing or ["host"])
        raise S3Error(
            "AccessDenied",
            "There were headers present in the request which were not signed",
            {"HeadersNotSigned": names},
        )
    return claim


def _is_time(claim: Claim) -> bool:
    try:
        return claim.signed_at > 0
    except ValueError:
        return False


def _other_mechanism() -> S3Error:
    text = "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."
    text += " (boto3 presigns by it with Config(signature_version='s3v4').)"
    return S3Error("InvalidRequest", text)


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
