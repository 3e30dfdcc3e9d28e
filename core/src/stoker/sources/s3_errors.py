"""What an S3 store says when it refuses, as a SourceError: by its error code, else by its status. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stoker.api.reasons import Reason
from stoker.sources.base import SourceError

_CODE = re.compile(r"<Code>\s*(\w+)\s*</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,500})</Message>")
_KEYS = "check the access key and its secret (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or the profile)."
_RENEW = "renew the credentials (for example `aws sso login`) and try again."
_RIGHTS = "ask for the rights s3:ListBucket on the bucket and s3:GetObject on its objects."
_BY_CODE = {
    "AccessDenied": (Reason.AccessDenied, _RIGHTS),
    "AllAccessDisabled": (Reason.AccessDenied, _RIGHTS),
    "InvalidAccessKeyId": (Reason.AccessDenied, _KEYS),
    "SignatureDoesNotMatch": (Reason.AccessDenied, _KEYS),
    "RequestTimeTooSkewed": (Reason.AccessDenied, "set the clock of this machine (NTP)."),
    "ExpiredToken": (Reason.CredentialsExpired, _RENEW),
    "ExpiredTokenException": (Reason.CredentialsExpired, _RENEW),
    "TokenRefreshRequired": (Reason.CredentialsExpired, _RENEW),
    "InvalidToken": (Reason.CredentialsExpired, _RENEW),
    "InvalidObjectState": (Reason.Archived, "restore the object in its store, then read it."),
    "NoSuchBucket": (Reason.BucketNotFound, "check the name of the bucket and the endpoint."),
    "InvalidBucketName": (Reason.BucketNotFound, "check the name of the bucket and the endpoint."),
    "NoSuchKey": (Reason.SourceNotFound, "check the uri."),
    "PreconditionFailed": (Reason.SourceChanged, "mount again to see the new version."),
    "SlowDown": (Reason.Throttled, ""),
    "RequestLimitExceeded": (Reason.Throttled, ""),
    "ThrottlingException": (Reason.Throttled, ""),
}
_BY_STATUS = {401: "AccessDenied", 403: "AccessDenied", 404: "NoSuchKey", 412: "PreconditionFailed", 429: "SlowDown"}
_RETRYABLE = (Reason.Throttled, Reason.SourceUnavailable)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused request. `body` may be empty: answers to HEAD have none."""

    status: int
    body: str
    place: str
    identity: str
    retry_after_s: float = 0.0
    method: str = "GET"

    @property
    def code(self) -> str:
        found = _CODE.search(self.body)
        return found[1] if found else ""

    def error(self) -> SourceError:
        """The reason, with what the store said and who asked."""
        reason, step = self._reason()
        if reason == Reason.AccessDenied and self.identity == "anonymous" and self.code in ("", "AccessDenied"):
            reason = Reason.CredentialsMissing
            step = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and leave options.unsigned out."
        return SourceError(
            reason,
            f"{self._said()} (as {self.identity})",
            place=self.place,
            next_step=step,
            retryable=reason in _RETRYABLE,
            retry_after_s=self.retry_after_s,
        )

    def _reason(self) -> tuple[Reason, str]:
        # 503 means throttled here, whatever the code: S3 has no other use for it.
        code = "SlowDown" if self.status == 503 else self.code
        if self.status == 404 and not code and self.method != "HEAD":
            # Not an S3 store: a proxy, a wrong path. Never taken for an object or a bucket that is not there.
            return Reason.SourceUnavailable, "check the endpoint: what answers there is no S3 store."
        found = _BY_CODE.get(code) or _BY_CODE.get(_BY_STATUS.get(self.status, ""))
        return found or (Reason.SourceUnavailable, "try again; if it stays, ask whoever runs the store.")

    def _said(self) -> str:
        message = _MESSAGE.search(self.body)
        parts = [f"the store answered {self.status}", self.code, message[1].strip() if message else ""]
        return " ".join(" ".join(part for part in parts if part).split())


def retry_after(header: str | None) -> float:
    """Seconds that a Retry-After header asks for, at most 5 minutes; 0 when there is none that is a number."""
    try:
        return min(max(float(header or 0), 0.0), 300.0)
    except ValueError:
        return 0.0
