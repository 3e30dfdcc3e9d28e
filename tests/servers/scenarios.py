"""What stores do wrong, one function for each: scenarios for `servers.scripted_store`."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from threading import Event

from servers.scripted_store import Request, Response, Scenario, ScriptedStore, s3_error


def refuses(status: int, code: str = "", **headers: str | None) -> Scenario:
    """An error, with the XML body that S3 sends, or with none."""
    return lambda _, __: s3_error(status, code, **headers) if code else Response(status).having(**headers)


def slow_down(retry_after: str | None = None) -> Scenario:
    return refuses(503, "SlowDown", retry_after=retry_after)


def never_answers() -> Scenario:
    return lambda _, __: Response(silent=True, end="hang")


def stalls(after: int) -> Scenario:
    """Some bytes of the body, then nothing more, on an open connection."""
    return lambda _, right: _cut(right, after, "hang")


def thinks(seconds: float, asked: Event | None = None) -> Scenario:
    """The right answer, after a while; `asked` is set when that begins."""

    def scenario(_request: Request, right: Response) -> Response:
        if asked is not None:
            asked.set()
        return replace(right, delay=seconds)

    return scenario


def drips(per_second: int) -> Scenario:
    return lambda _request, right: replace(right, pace=per_second)


def truncated(after: int, *, reset: bool = False) -> Scenario:
    """The announced length, but only `after` bytes; then FIN or RST."""
    return lambda _, right: _cut(right, after, "reset" if reset else "close")


def short_body(missing: int = 1) -> Scenario:
    """A Content-Length that is honest about a body that is too short for its range."""
    return lambda _, right: replace(right, body=right.body[:-missing])


def long_body(extra: bytes = b"x") -> Scenario:
    """More bytes than the range has, announced so."""
    return lambda _, right: replace(right, body=right.body + extra)


def ignores_range(store: ScriptedStore) -> Scenario:
    """200 and the whole object, whatever was asked."""

    def whole(request: Request, right: Response) -> Response:
        return replace(right, status=200, body=store.objects[request.key].data).having(content_range=None)

    return whole


def with_headers(**headers: str | None) -> Scenario:
    """The right answer with some headers changed: `content_range`, `etag`, `last_modified`, ..."""
    return lambda _, right: right.having(**headers)


def shifted(by: int) -> Scenario:
    """A range beside the one that was asked for."""

    def shift(_: Request, right: Response) -> Response:
        start, last, size = map(int, re.findall(r"\d+", str(right.headers["Content-Range"])))
        return right.having(content_range=f"bytes {start + by}-{last + by}/{size}")

    return shift


def redirects(location: str, status: int = 302) -> Scenario:
    return lambda _, __: Response(status).having(location=location)


def redirects_to_itself(status: int = 307) -> Scenario:
    """A loop: whoever follows comes back to the same place."""
    return lambda request, _: Response(status).having(location=request.target)


def html_page(status: int = 200) -> Scenario:
    """What a proxy or a login page answers instead of the store."""
    return lambda _, __: Response(status, {"Content-Type": "text/html"}, b"<html><body>Please log in</body></html>")


def decompressing() -> Scenario:
    """A store that unzips what it sends: marked as encoded once, of another length, without a Content-Length."""

    def unzipped(_: Request, right: Response) -> Response:
        return replace(right, body=right.body * 3, end="close").having(content_encoding="gzip", content_length=None)

    return unzipped


def zipped() -> Scenario:
    """A proxy that compresses what passes: honest headers of the whole, but a body of other bytes."""
    return lambda _, right: replace(right, body=gzip.compress(right.body)).having(content_encoding="gzip")


def other_total(by: int) -> Scenario:
    """A Content-Range of the right bytes of an object of another size."""

    def total(_: Request, right: Response) -> Response:
        start, last, size = map(int, re.findall(r"\d+", str(right.headers["Content-Range"])))
        return right.having(content_range=f"bytes {start}-{last}/{size + by}")

    return total


def only_in_region(region: str, status: int = 301) -> Scenario:
    """Refuses what is signed for another region, and names the right one."""

    def check(request: Request, right: Response) -> Response:
        if f"/{region}/s3/" in request.headers.get("authorization", ""):
            return right
        return s3_error(status, "PermanentRedirect" if status == 301 else "AuthorizationHeaderMalformed").having(
            x_amz_bucket_region=region
        )

    return check


def replaced_before(store: ScriptedStore, data: bytes) -> Scenario:
    """The object is replaced before it is answered, by a store that does not look at If-Match."""

    def swap(request: Request, right: Response) -> Response:
        store.put(request.key, data)
        blind = replace(request, headers={k: v for k, v in request.headers.items() if k != "if-match"})
        return store.serve(blind)

    return swap


def in_pages(*pages: Response) -> Scenario:
    """The pages of a listing in turn, by tokens `1`, `2`, ...; put the tokens into the pages."""
    return lambda request, _: pages[int(request.query.get("continuation-token", b"0"))]


def _cut(right: Response, after: int, end: str) -> Response:
    headers = {**right.headers, "Content-Length": str(len(right.body))}
    return replace(right, headers=headers, body=right.body[:after], end=end)
