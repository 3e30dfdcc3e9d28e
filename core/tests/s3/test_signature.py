"""Signature Version 4: the examples of the AWS documentation, and what is refused."""

from __future__ import annotations

import calendar
from dataclasses import replace

import pytest

from stoker.s3.errors import S3Error
from stoker.s3.request import S3Request
from stoker.s3.sigv4 import EMPTY_SHA256, Claim, check, claim_of

KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
NOW = calendar.timegm((2013, 5, 24, 0, 0, 0))
HOST = ("Host", "examplebucket.s3.amazonaws.com")
PUT_SHA256 = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"
PRESIGNED = (
    "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
    f"&X-Amz-Credential={KEY}%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z"
    "&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
    "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
)


def signed(method: str, target: str, signature: str, payload: str = EMPTY_SHA256, **more: str) -> S3Request:
    """A request as the documentation signs it."""
    headers = [HOST, ("x-amz-content-sha256", payload), ("x-amz-date", "20130524T000000Z")]
    headers += [(name.replace("_", "-"), value) for name, value in more.items()]
    names = ";".join(sorted(name.lower() for name, _ in headers))
    credential = f"{KEY}/20130524/us-east-1/s3/aws4_request"
    value = f"AWS4-HMAC-SHA256 Credential={credential},SignedHeaders={names},Signature={signature}"
    return S3Request.parse(method, target, [*headers, ("Authorization", value)])


# https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html, and sigv4-query-string-auth.html
EXAMPLES = {
    "GetObject with a range": signed(
        "GET", "/test.txt", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41", Range="bytes=0-9"
    ),
    "PutObject": signed(
        "PUT",
        "/test%24file.text",
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        PUT_SHA256,
        Date="Fri, 24 May 2013 00:00:00 GMT",
        x_amz_storage_class="REDUCED_REDUNDANCY",
    ),
    "a parameter without a value": signed(
        "GET", "/?lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    ),
    "ListObjects": signed(
        "GET", "/?max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    ),
    "presigned": S3Request.parse("GET", PRESIGNED, [HOST]),
}


def refusal(request: S3Request, secret: str = SECRET, now: float = NOW) -> str:
    with pytest.raises(S3Error) as refused:
        check(claim_of(request), request, secret, now)
    return refused.value.code


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_the_documentation_are_accepted(name: str) -> None:
    request = EXAMPLES[name]
    claim = claim_of(request)
    assert claim.access_key == KEY
    check(claim, request, SECRET, NOW)


@pytest.mark.parametrize("name", EXAMPLES)
def test_another_secret_method_path_or_query_is_refused(name: str) -> None:
    request = EXAMPLES[name]
    assert refusal(request, "another") == "SignatureDoesNotMatch"
    assert refusal(replace(request, method="DELETE")) == "SignatureDoesNotMatch"
    assert refusal(replace(request, path=request.path + b"x")) == "SignatureDoesNotMatch"
    assert refusal(replace(request, query=(*request.query, (b"more", b"")))) == "SignatureDoesNotMatch"
    assert refusal(replace(request, headers={**request.headers, "host": "other"})) == "SignatureDoesNotMatch"


def test_how_a_client_writes_the_path_does_not_matter() -> None:
    request = EXAMPLES["PutObject"]
    plain = S3Request.parse("PUT", "/test$file.text", list(request.headers.items()))
    check(claim_of(plain), plain, SECRET, NOW)


@pytest.mark.parametrize(
    ("seconds", "code"), [(0, ""), (899, ""), (-899, ""), (901, "RequestTimeTooSkewed"), (-901, "RequestTimeTooSkewed")]
)
def test_a_clock_may_be_15_minutes_off(seconds: int, code: str) -> None:
    request = EXAMPLES["ListObjects"]
    if code:
        assert refusal(request, now=NOW + seconds) == code
    else:
        check(claim_of(request), request, SECRET, NOW + seconds)


@pytest.mark.parametrize(("seconds", "code"), [(86400, ""), (86401, "AccessDenied"), (-901, "AccessDenied")])
def test_a_presigned_url_ends(seconds: int, code: str) -> None:
    request = EXAMPLES["presigned"]
    if code:
        assert refusal(request, now=NOW + seconds) == code
    else:
        check(claim_of(request), request, SECRET, NOW + seconds)


def changed(header: str, old: str, new: str) -> S3Request:
    headers = dict(EXAMPLES["ListObjects"].headers)
    headers[header] = headers[header].replace(old, new)
    return replace(EXAMPLES["ListObjects"], headers={name: value for name, value in headers.items() if value})


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (S3Request.parse("GET", "/", [HOST]), "AccessDenied"),
        (S3Request.parse("GET", "/", [HOST, ("Authorization", f"AWS {KEY}:c2lnbmF0dXJl")]), "InvalidRequest"),
        (S3Request.parse("GET", f"/?AWSAccessKeyId={KEY}&Signature=x&Expires=1", [HOST]), "InvalidRequest"),
        (changed("authorization", "Signature=", "Sig="), "AuthorizationHeaderMalformed"),
        (changed("authorization", "/s3/", "/sts/"), "AuthorizationHeaderMalformed"),
        (changed("authorization", "20130524/", "20130525/"), "AuthorizationHeaderMalformed"),
        (changed("authorization", "host;", ""), "AccessDenied"),
        (changed("authorization", "x-amz-content-sha256;", ""), "AccessDenied"),
        (changed("x-amz-date", "20130524T000000Z", "yesterday"), "AuthorizationHeaderMalformed"),
        (changed("x-amz-date", "20130524T000000Z", "20130524T990000Z"), "AuthorizationHeaderMalformed"),
        (changed("x-amz-date", "20130524T000000Z", ""), "AccessDenied"),
        (S3Request.parse("GET", PRESIGNED.replace("86400", "604801"), [HOST]), "AuthorizationQueryParametersError"),
        (S3Request.parse("GET", PRESIGNED.replace("86400", "-1"), [HOST]), "AuthorizationQueryParametersError"),
        (S3Request.parse("GET", PRESIGNED.replace("host", ""), [HOST]), "AuthorizationQueryParametersError"),
        (S3Request.parse("GET", PRESIGNED, [HOST, ("Authorization", "AWS4-HMAC-SHA256 x")]), "InvalidArgument"),
    ],
)
def test_what_is_not_signed_as_s3_wants_it_is_refused(request_: S3Request, code: str) -> None:
    assert refusal(request_) == code


def test_a_claim_shows_no_more_than_it_says() -> None:
    claim = claim_of(EXAMPLES["presigned"])
    assert claim == Claim(
        KEY,
        "20130524/us-east-1/s3/aws4_request",
        ("host",),
        "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
        "20130524T000000Z",
        "UNSIGNED-PAYLOAD",
        86400,
    )
