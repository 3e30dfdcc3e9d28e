"""What the endpoint refuses, with the codes, statuses and XML of S3. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.s3.xmltext import document, element

STATUS = {
    "AccessDenied": 403,
    "AuthorizationHeaderMalformed": 400,
    "AuthorizationQueryParametersError": 400,
    "ExpiredToken": 400,
    "InternalError": 500,
    "InvalidAccessKeyId": 403,
    "InvalidArgument": 400,
    "InvalidBucketName": 400,
    "InvalidObjectState": 403,
    "InvalidRange": 416,
    "InvalidRequest": 400,
    "MethodNotAllowed": 405,
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NoSuchVersion": 404,
    "NotImplemented": 501,
    "PreconditionFailed": 412,
    "RequestTimeTooSkewed": 403,
    "ServiceUnavailable": 503,
    "SignatureDoesNotMatch": 403,
    "SlowDown": 503,
    "XAmzContentSHA256Mismatch": 400,
}
"""The HTTP status of each code."""

# What the source did, as a client of S3 understands it: 4xx is final, 5xx is tried again.
_CODES = {
    Reason.AccessDenied: "AccessDenied",
    Reason.CredentialsExpired: "AccessDenied",
    Reason.CredentialsMissing: "AccessDenied",
    Reason.Archived: "InvalidObjectState",
    Reason.SourceChanged: "PreconditionFailed",
    Reason.SourceNotFound: "NoSuchKey",
    Reason.BucketNotFound: "NoSuchKey",
    Reason.NotMounted: "NoSuchBucket",
    Reason.SourceUnavailable: "ServiceUnavailable",
    Reason.Timeout: "ServiceUnavailable",
    Reason.Throttled: "SlowDown",
}


class S3Error(Exception):
    """A refusal. `fields` are further elements of the answer's XML, `headers` of the answer."""

    def __init__(
        self,
        code: str,
        message: str,
        fields: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.fields = code, message, dict(fields or {})
        self.headers = dict(headers or {})
        self.status = STATUS[code]

    def body(self, resource: str, request_id: str) -> bytes:
        parts = [element("Code", self.code), element("Message", self.message)]
        parts += [element(name, value) for name, value in self.fields.items()]
        parts += [element("Resource", resource), element("RequestId", request_id)]
        return document("Error", "".join(parts))


class NotModified(Exception):  # noqa: N818 - an answer (304), not an error
    """The client has this version already. `headers` of the answer are the validators."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.headers = dict(headers or {})


def of_stoker(error: StokerError) -> S3Error:
    """A failed read as S3 would have it. The reason word stays in the message."""
    return S3Error(_CODES.get(error.reason, "InternalError"), f"{error.reason}: {error.message}")
