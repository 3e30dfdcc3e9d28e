"""Source uris: what each scheme's parts are, and what is refused with which word."""

from __future__ import annotations

import pytest

from stoker.api.fielderror import FieldError
from stoker.api.reasons import Reason
from stoker.api.uri import parse_uri


@pytest.mark.parametrize(
    ("text", "scheme", "store", "prefix"),
    [
        ("s3://corp-data/imagenet/", "s3", "corp-data", b"imagenet/"),
        ("s3://corp-data", "s3", "corp-data", b""),
        ("s3://corp-data/", "s3", "corp-data", b""),
        ("s3://b/a b?c#d%20e+f", "s3", "b", b"a b?c#d%20e+f"),
        ("s3://b/ä//x", "s3", "b", "ä//x".encode()),
        ("s3://b/\udcff", "s3", "b", b"\xff"),
        ("gs://bucket/k", "gs", "bucket", b"k"),
        ("az://container/p/", "az", "container", b"p/"),
        ("azureml://datastores/workspaceblobstore/paths/a/b", "azureml", "workspaceblobstore", b"a/b"),
        ("hf://datasets/owner/name/data/", "hf", "datasets/owner/name", b"data/"),
        ("hf://owner/model@main/x.bin", "hf", "owner/model@main", b"x.bin"),
        ("https://Example.com:8443/a/b.tar?sig=%2F", "https", "example.com:8443", b"a/b.tar?sig=%2F"),
        ("file:///data/a%20b/", "file", "", b"/data/a b/"),
        ("file://localhost/data", "file", "", b"/data"),
        ("dataset://vision/imagenet:3/train", "dataset", "vision/imagenet:3", b"train"),
        ("dataset://vision/imagenet", "dataset", "vision/imagenet", b""),
        ("fsspec+webhdfs://host:50070/a/b", "fsspec+webhdfs", "host:50070", b"a/b"),
    ],
)
def test_parts(text: str, scheme: str, store: str, prefix: bytes) -> None:
    uri = parse_uri(text)
    assert (uri.scheme, uri.store, uri.prefix) == (scheme, store, prefix)


def test_azure_accounts() -> None:
    uri = parse_uri("abfss://raw@corpdata.dfs.core.windows.net/2024/")
    assert (uri.store, uri.account, uri.domain) == ("raw", "corpdata", "dfs.core.windows.net")
    assert parse_uri("az://raw@corpdata/x").account == "corpdata"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("S3://b/", "Did you mean s3://"),
        ("s3a://b/", "Did you mean s3://"),
        ("gcs://b/", "Did you mean gs://"),
        ("http://h/f", "Did you mean https://"),
        ("ftp://h/f", "The schemes are s3, gs"),
        ("/data/x", "file:///data/x"),
        ("bucket/prefix", "Write it as s3://"),
        ("s3:/b/", "Write it as s3://"),
    ],
)
def test_unknown_schemes_are_refused_with_what_was_meant(text: str, hint: str) -> None:
    with pytest.raises(FieldError) as refused:
        parse_uri(text)
    assert refused.value.reason is Reason.UnknownScheme
    assert hint in refused.value.accepted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s3://",
        "s3:///key",
        "s3://a b/key",
        "s3://b/\0",
        "s3://b/" + "a" * 2048,
        "abfss://raw/x",
        "azureml://x/y",
        "hf://owner",
        "https://",
        "https://host",
        "https://host/folder/",
        "https://host/?q=1",
        "https://user:secret@host/f",
        "file://server/share/x",
        "file://data",
        "dataset://only",
        "fsspec+webhdfs://",
        "fsspec+zip://a::s3://b/c",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(FieldError) as refused:
        parse_uri(text)
    assert refused.value.reason is Reason.InvalidValue
    assert refused.value.accepted


def test_a_password_in_a_uri_is_not_repeated() -> None:
    with pytest.raises(FieldError) as refused:
        parse_uri("https://user:hunter2@host/f")
    assert "hunter2" not in refused.value.message + refused.value.accepted


def test_folders_and_names() -> None:
    assert parse_uri("s3://b/x/").is_folder
    assert parse_uri("s3://b").is_folder
    assert not parse_uri("s3://b/x").is_folder
    assert parse_uri("s3://b/x/y/").last_component == b"y"
