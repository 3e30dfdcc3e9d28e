"""Errors as RFC 9457 has them, and which status each reason has."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from stoker.api.base import Model
from stoker.api.errors import StokerError
from stoker.api.reasons import Reason

CONTENT_TYPE = "application/problem+json"

_STATUS = {
    Reason.NotJson: 400,
    Reason.CertificateRefused: 403,
    Reason.PermissionDenied: 403,
    Reason.AccessDenied: 403,
    Reason.NotMounted: 404,
    Reason.SourceNotFound: 404,
    Reason.BucketNotFound: 404,
    Reason.DataSetNotFound: 404,
    Reason.RouteNotFound: 404,
    Reason.S3Disabled: 404,
    Reason.MethodNotAllowed: 405,
    Reason.Timeout: 408,
    Reason.MountBusy: 409,
    Reason.AlreadyMounted: 409,
    Reason.BodyTooLarge: 413,
    Reason.ContentTypeNotSupported: 415,
    Reason.Internal: 500,
}
_OTHER = 422

ALWAYS = (Reason.CertificateRefused, Reason.InvalidValue, Reason.UnknownField, Reason.MissingField)
"""What any route answers."""
WITH_BODY = (Reason.NotJson, Reason.BodyTooLarge, Reason.ContentTypeNotSupported, Reason.Timeout)
"""And what those answer that take a body."""


class Problem(Model):
    """RFC 9457: why a request was refused or failed, and what to do about it."""

    type: str
    """Always `about:blank`."""
    title: str
    """The reason."""
    status: int
    """The status of the answer; in the last line of a stream the one that the answer would have had."""
    detail: str
    """What is wrong, for people."""
    message: str
    """The same."""
    reason: Reason
    """One word; stable."""
    place: str
    """Where: the path of a field, a file and its line, a uri, a name. May be empty."""
    next_step: str
    """What to do about it. May be empty."""


def status_of(reason: Reason) -> int:
    return _STATUS.get(reason, _OTHER)


def problem(error: StokerError) -> dict[str, Any]:
    """An error as `Problem`."""
    status = status_of(error.reason)
    return {
        "type": "about:blank",
        "title": str(error.reason),
        "status": status,
        "detail": error.message,
        **error.to_json(),
    }


def problem_response(error: StokerError) -> web.Response:
    body = problem(error)
    return web.json_response(body, status=body["status"], content_type=CONTENT_TYPE)


def internal(error: Exception) -> StokerError:
    """What nobody foresaw."""
    return StokerError(Reason.Internal, f"{type(error).__name__}: {error}", next_step="see the node's log.")
