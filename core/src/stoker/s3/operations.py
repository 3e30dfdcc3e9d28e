"""What the endpoint does for one request that is signed: read-only operations, and a refusal for all else."""

from __future__ import annotations

import contextlib
import secrets

import structlog
from aiohttp import web

from stoker.api.errors import StokerError
from stoker.s3.auth import Auth
from stoker.s3.buckets import Bucket, Buckets, Object
from stoker.s3.conditions import check_conditions, quoted, range_of
from stoker.s3.errors import NotModified, S3Error, of_stoker
from stoker.s3.keys import AccessKey
from stoker.s3.lists import Listing, list_objects
from stoker.s3.reads import Range, Reads
from stoker.s3.request import S3Request
from stoker.s3.sending import SMALL, send, small
from stoker.s3.times import http_date, iso_date
from stoker.s3.xmltext import document, element

log = structlog.get_logger("stoker.s3")

BYPASS_HEADER = "x-stoker-cache"
"""`Bypass`: the bytes come from the source, exactly those of the range, and nothing is stored."""

_XML = "application/xml"
_OCTETS = "binary/octet-stream"
# Sub-resources of S3 that are operations of their own; an unknown parameter is no operation, and is not looked at.
_OTHER_OPERATIONS = frozenset(
    {
        *(b"accelerate", b"acl", b"analytics", b"attributes", b"cors", b"encryption", b"intelligent-tiering"),
        *(b"inventory", b"legal-hold", b"lifecycle", b"logging", b"metadataTable", b"metrics", b"notification"),
        *(b"object-lock", b"ownershipControls", b"partNumber", b"policy", b"policyStatus", b"publicAccessBlock"),
        *(b"replication", b"requestPayment", b"restore", b"retention", b"select", b"session", b"tagging", b"torrent"),
        *(b"uploadId", b"uploads", b"versioning", b"versions", b"website"),
    }
)
# Headers that a signed query may set in the answer.
_OVERRIDES = {
    "response-cache-control": "Cache-Control",
    "response-content-disposition": "Content-Disposition",
    "response-content-encoding": "Content-Encoding",
    "response-content-language": "Content-Language",
    "response-content-type": "Content-Type",
    "response-expires": "Expires",
}


class Operations:
    """Answers requests of one process."""

    def __init__(self, auth: Auth, buckets: Buckets, reads: Reads) -> None:
        self._auth, self._buckets, self._reads = auth, buckets, reads

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The handler of an aiohttp server. An answer is whole, or the connection ends."""
        headers = [(name, value) for name, value in request.headers.items()]
        asked = S3Request.parse(request.method, request.raw_path, headers)
        base = {"x-amz-request-id": secrets.token_hex(8).upper(), "Server": "Stoker"}
        try:
            key = await self._auth.check(asked, request)
            return await self._answer(asked, key, request, base)
        except NotModified as unchanged:
            return web.Response(status=304, headers={**base, **unchanged.headers})
        except S3Error as error:
            return _refusal(asked, error, base)
        except StokerError as error:
            return _refusal(asked, of_stoker(error), base)
        except (ConnectionError, TimeoutError):
            _abort(request)
            return web.Response()  # nobody is there to take it
        except Exception:
            log.exception("request failed", request=base["x-amz-request-id"], method=asked.method)
            internal = S3Error("InternalError", "We encountered an internal error. Please try again.")
            return _refusal(asked, internal, base)

    async def _answer(
        self, asked: S3Request, key: AccessKey, request: web.BaseRequest, base: dict[str, str]
    ) -> web.StreamResponse:
        _check_operation(asked)
        if not asked.bucket:
            return _xml(self._list_buckets(asked, key), base)
        bucket = self._bucket(asked, key)
        with bucket.in_use():
            return await self._answer_of(bucket, asked, key, request, base)

    async def _answer_of(
        self, bucket: Bucket, asked: S3Request, key: AccessKey, request: web.BaseRequest, base: dict[str, str]
    ) -> web.StreamResponse:
        if asked.key:
            return await self._object(asked, key, bucket, request, base)
        if asked.method == "HEAD":
            return web.Response(headers={**base, "x-amz-bucket-region": "us-east-1"}, content_type=_XML)
        if asked.param("location") is not None:
            return _xml(document("LocationConstraint", "", namespace=True), base)
        return _xml(list_objects(bucket.name, bucket.manifest, Listing.of(asked)), base)

    def _list_buckets(self, asked: S3Request, key: AccessKey) -> bytes:
        if asked.method != "GET":
            raise _not_allowed(asked)
        rows = [
            f"<Bucket>{element('Name', bucket.name)}{element('CreationDate', iso_date(bucket.newest_ns))}</Bucket>"
            for bucket in self._buckets.all()
            if key.opens(bucket.spec.data_set)
        ]
        owner = f"<Owner>{element('ID', key.reader)}{element('DisplayName', key.reader)}</Owner>"
        return document("ListAllMyBucketsResult", f"{owner}<Buckets>{''.join(rows)}</Buckets>", namespace=True)

    def _bucket(self, asked: S3Request, key: AccessKey) -> Bucket:
        bucket = self._buckets.get(asked.bucket)
        if bucket is None:
            text = "The specified bucket does not exist: no DataSet of that name is mounted on this node."
            raise S3Error("NoSuchBucket", text, {"BucketName": asked.bucket})
        if not key.opens(bucket.spec.data_set):
            raise S3Error("AccessDenied", "Access Denied. This key is of another DataSet.")
        return bucket

    async def _object(
        self, asked: S3Request, key: AccessKey, bucket: Bucket, request: web.BaseRequest, base: dict[str, str]
    ) -> web.StreamResponse:
        if asked.text("versionId") not in (None, "null"):
            raise S3Error("NoSuchVersion", "A generation has one version of each object.")
        found = bucket.object(asked.key)
        if found is None:
            raise S3Error("NoSuchKey", "The specified key does not exist.", {"Key": asked.key.decode(errors="replace")})
        headers = {**base, **_validators(found)}
        version = found.file.version
        try:
            check_conditions(asked.headers, version.etag, version.mtime_ns)
        except NotModified:
            raise NotModified(headers) from None
        wanted = range_of(asked.headers, version.size, version.etag, version.mtime_ns)
        start, stop = wanted or (0, version.size)
        headers |= {"Accept-Ranges": "bytes", "Content-Type": _OCTETS, "Content-Length": str(stop - start)}
        headers |= {name: value for param, name in _OVERRIDES.items() if (value := asked.text(param)) is not None}
        if wanted is not None:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{version.size}"
        bypass = key.bypass or asked.headers.get(BYPASS_HEADER, "").lower() == "bypass"
        body = Range(bucket, found, start, stop, bypass)
        status = 200 if wanted is None else 206
        if found.file.archived and asked.method == "GET":
            raise S3Error("InvalidObjectState", "The operation is not valid for the object's storage class")
        return await self._send(request, body, web.StreamResponse(status=status, headers=headers))

    async def _send(self, request: web.BaseRequest, body: Range, response: web.StreamResponse) -> web.StreamResponse:
        if request.method == "HEAD" or body.start == body.stop:
            await response.prepare(request)
            await response.write_eof()
            return response
        try:
            if body.stop - body.start <= SMALL:
                data = await small(self._reads, body)
                headers = response.headers.copy()
                del headers["Content-Length"]
                return web.Response(status=response.status, headers=headers, body=data)
            await self._stream(request, body, response)
        except Exception as error:
            if isinstance(error, StokerError):
                self._reads.count_error(body)
            if not response.prepared:
                raise
            if not isinstance(error, StokerError | ConnectionError | TimeoutError):
                log.exception("answer broken off", data_set=body.bucket.spec.data_set)
            _abort(request)  # the client sees that the body is not whole, and asks again
        return response

    async def _stream(self, request: web.BaseRequest, body: Range, response: web.StreamResponse) -> None:
        async with contextlib.aclosing(self._reads.pieces(body)) as pieces:
            async for piece in pieces:
                if not response.prepared:  # not before the first bytes are there: until then it may be refused
                    await response.prepare(request)
                transport = request.transport
                if transport is None:
                    raise ConnectionResetError("the client is gone")
                await send(response, transport, self._reads, piece)
        await response.write_eof()


def _check_operation(asked: S3Request) -> None:
    if asked.method not in ("GET", "HEAD"):
        raise _not_allowed(asked)
    other = next((name for name, _ in asked.query if name in _OTHER_OPERATIONS), None)
    if other is not None:
        text = f"A header or query you provided implies functionality that is not implemented: {other.decode()}"
        raise S3Error("NotImplemented", text)


def _not_allowed(asked: S3Request) -> S3Error:
    text = "The specified method is not allowed against this resource. The endpoint is read-only."
    return S3Error("MethodNotAllowed", text, {"Method": asked.method}, {"Allow": "GET, HEAD"})


def _validators(found: Object) -> dict[str, str]:
    version = found.file.version
    headers = {"Last-Modified": http_date(version.mtime_ns)}
    return {**headers, "ETag": quoted(version.etag)} if version.etag else headers


def _xml(body: bytes, headers: dict[str, str]) -> web.Response:
    return web.Response(body=body, headers=headers, content_type=_XML)


def _refusal(asked: S3Request, error: S3Error, base: dict[str, str]) -> web.Response:
    resource = asked.path.decode(errors="replace")
    body = b"" if asked.method == "HEAD" else error.body(resource, base["x-amz-request-id"])
    response = web.Response(status=error.status, headers={**base, **error.headers}, body=body, content_type=_XML)
    if asked.method not in ("GET", "HEAD"):
        response.force_close()  # its body was not read
    return response


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
