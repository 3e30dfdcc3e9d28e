"""The S3 endpoint of a real node: what is read and listed through it, and what it does not do. By boto3."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from servers.mounts import IMPATIENT
from servers.node import Node, data_set, processes_of, wait_for
from servers.s3 import from_source, keys, mounted, read, refused, send, serving_node
from servers.scenarios import refuses
from servers.scripted_store import ScriptedStore

pytestmark = pytest.mark.fuse

PAGE = 16 << 10
BIG = 20_000_005
NOT_DONE = {
    ("PUT", "/ds/x"): (405, "MethodNotAllowed"),
    ("DELETE", "/ds/big"): (405, "MethodNotAllowed"),
    ("POST", "/ds?delete="): (405, "MethodNotAllowed"),
    ("PUT", "/new"): (405, "MethodNotAllowed"),
    ("GET", "/ds?acl="): (501, "NotImplemented"),
    ("GET", "/ds?versions="): (501, "NotImplemented"),
    ("GET", "/ds/big?tagging="): (501, "NotImplemented"),
    ("GET", "/ds/big?partNumber=2"): (501, "NotImplemented"),
    ("GET", "/ds/big?versionId=7"): (404, "NoSuchVersion"),
    ("GET", "/ds?max-keys=x"): (400, "InvalidArgument"),
}


@pytest.fixture
def node(s3_node: Node) -> Node:
    return s3_node


@pytest.fixture
def store(s3_store: ScriptedStore) -> ScriptedStore:
    return s3_store


class TestReads:
    def test_objects_and_ranges_have_the_bytes_of_the_source(self, node: Node, store: ScriptedStore) -> None:
        data = store.objects[b"big"].data
        ours = mounted(node, store)
        client = ours.client()
        for _ in ("cold", "warm"):
            assert read(ours, "big") == data
            assert read(ours, "big", Range="bytes=-10") == data[-10:]
            assert read(ours, "big", Range="bytes=5-") == data[5:]
            assert read(ours, "big", Range="bytes=1000000-1000000") == data[1_000_000:1_000_001]
            assert read(ours, "d/small") == b"hello"
            assert read(ours, "empty") == b""
        head = client.head_object(Bucket="ds", Key="big")
        assert (head["ContentLength"], head["ETag"]) == (BIG, store.objects[b"big"].etag)
        assert head["LastModified"] == store.objects[b"big"].modified
        part = client.get_object(Bucket="ds", Key="big", Range="bytes=0-9")
        assert (part["ContentRange"], part["ContentLength"]) == (f"bytes 0-9/{BIG}", 10)
        assert from_source(node) <= BIG + PAGE, "each byte came once"

    def test_a_range_read_moves_only_its_bytes(self, node: Node, store: ScriptedStore) -> None:
        ours = mounted(node, store)
        wanted = 5 * PAGE + 100, 5 * PAGE + 100 + 3_000_000  # several pieces of one answer, next to each other
        assert (
            read(ours, "big", Range=f"bytes={wanted[0]}-{wanted[1] - 1}") == store.objects[b"big"].data[slice(*wanted)]
        )
        assert wanted[1] - wanted[0] <= from_source(node) <= wanted[1] - wanted[0] + 2 * PAGE
        before = from_source(node)
        assert read(ours, "big", Range="bytes=10000000-10000009") == store.objects[b"big"].data[10_000_000:10_000_010]
        assert from_source(node) - before == PAGE

    def test_bypass_takes_the_range_from_the_source_and_stores_nothing(self, node: Node, store: ScriptedStore) -> None:
        ours = mounted(node, store)
        by_key = keys(node, "ds", bypass=True)
        data = store.objects[b"big"].data
        status, _headers, body = send(ours, "GET", "/ds/big", Range="bytes=100-1099", X_Stoker_Cache="Bypass")
        assert (status, body) == (206, data[100:1100])
        assert (from_source(node), node.status("ds")["cachedBytes"]) == (1000, 0)
        assert read(by_key, "big") == data
        assert (from_source(node), node.status("ds")["cachedBytes"]) == (1000 + BIG, 0)

    def test_what_is_in_the_cache_needs_no_source(self, node: Node, store: ScriptedStore) -> None:
        ours = mounted(node, store, mount=IMPATIENT)
        assert read(ours, "big") == store.objects[b"big"].data
        data, store.objects[b"big"] = store.objects[b"big"].data, replace(store.objects[b"big"], data=b"", etag='"new"')
        assert read(ours, "big") == data
        assert node.status("ds")["bytesFromCache"] >= BIG

    def test_a_source_that_fails_is_an_error_of_s3(self, node: Node, store: ScriptedStore) -> None:
        ours = mounted(node, store, mount=IMPATIENT)
        store.on("big", refuses(403, "AccessDenied"))
        get = {"Bucket": "ds", "Key": "big"}
        assert refused(ours.client().get_object, **get) == "AccessDenied"
        store.put("d/small", b"other")
        assert refused(ours.client().get_object, Bucket="ds", Key="d/small") == "PreconditionFailed"
        store.on("down", refuses(500))
        assert refused(ours.client().get_object, Bucket="ds", Key="down") == "ServiceUnavailable"
        assert node.status("ds")["readErrors"] == 3

    def test_a_body_that_breaks_off_is_never_taken_for_whole(self, node: Node, store: ScriptedStore) -> None:
        ours = mounted(node, store, mount=IMPATIENT)
        assert len(read(ours, "big", Range="bytes=0-9999999")) == 10_000_000
        store.on("big", refuses(500))
        with pytest.raises(Exception, match=r"IncompleteRead|Connection|broken"):
            read(ours, "big")

    def test_pages_of_an_earlier_boot_are_checked_before_they_are_sent(
        self, s3_own: Node, scratch: Path, store: ScriptedStore
    ) -> None:
        node = s3_own
        node.settings["STOKER_BOOT_ID"] = "before"
        mounted(node, store)
        data = store.objects[b"big"].data
        assert read(keys(node, "ds"), "big") == data
        node.ok("node", "--stop")
        wait_for(lambda: not processes_of(scratch), what="the node ends")
        path = next(p for p in (scratch / "cache" / "objects").rglob("*") if p.is_file() and p.stat().st_size >= BIG)
        with path.open("r+b") as file:
            file.seek(9_000_000)
            file.write(b"\0" * 100)
        node.settings["STOKER_BOOT_ID"] = "after"
        ours = mounted(node, store)
        assert read(ours, "big") == data
        assert read(ours, "big", Range="bytes=9000000-9000099") == data[9_000_000:9_000_100]
        assert from_source(node) < BIG // 10


class TestCache:
    def test_room_of_what_is_evicted_is_used_again(self, scratch: Path, scripted_store: ScriptedStore) -> None:
        """The process must say that it has closed an evicted file, or its room is never free."""
        size = 12_000_000
        for number in range(6):
            scripted_store.put(f"o{number}", os.urandom(size))
        with serving_node(scratch, STOKER_CACHE_QUOTA="40Mi", STOKER_RESERVE_FREE="0") as node:
            ours = mounted(node, scripted_store)

            def kept(key: str) -> bool:
                """Whether another read of it needs no source."""
                before = from_source(node)
                assert read(ours, key) == scripted_store.objects[key.encode()].data
                return from_source(node) == before

            for _ in range(2):
                for number in range(6):
                    wait_for(lambda key=f"o{number}": kept(key), what="it is cached")
                    tier = node.api("GET", "/v1/status")["node"]["cache"]["tiers"][0]
                    assert tier["usedBytes"] <= tier["limitBytes"]


class TestConditions:
    def test_conditions_are_those_of_s3(self, node: Node, store: ScriptedStore) -> None:
        client = mounted(node, store).client()
        big: dict[str, Any] = {"Bucket": "ds", "Key": "big"}
        etag, modified = store.objects[b"big"].etag, store.objects[b"big"].modified
        assert client.head_object(**big, IfMatch=etag)["ContentLength"] == BIG
        assert refused(client.get_object, **big, IfMatch='"other"') == "PreconditionFailed"
        assert refused(client.get_object, **big, IfNoneMatch=etag) == "304"
        assert refused(client.head_object, **big, IfModifiedSince=modified) == "304"
        assert refused(client.get_object, **big, IfUnmodifiedSince=modified.replace(year=2001)) == "PreconditionFailed"
        assert refused(client.get_object, **big, Range=f"bytes={BIG}-") == "InvalidRange"
        assert from_source(node) == 0

    def test_an_error_is_xml_with_code_key_and_request(self, node: Node, store: ScriptedStore) -> None:
        ours = mounted(node, store)
        status, headers, body = send(ours, "GET", "/ds/not%20there")
        root = etree.fromstring(body)
        assert (status, headers["Content-Type"]) == (404, "application/xml")
        assert [root.tag, *(child.tag for child in root)] == [
            "Error",
            "Code",
            "Message",
            "Key",
            "Resource",
            "RequestId",
        ]
        assert (root.findtext("Code"), root.findtext("Key")) == ("NoSuchKey", "not there")
        assert root.findtext("RequestId") == headers["x-amz-request-id"]
        assert send(ours, "HEAD", "/ds/not%20there")[::2] == (404, b"")

    def test_what_a_read_only_endpoint_does_not_do(self, node: Node, store: ScriptedStore) -> None:
        ours = mounted(node, store)
        for (method, path), expected in NOT_DONE.items():
            answer = send(ours, method, path)
            assert (answer[0], etree.fromstring(answer[2]).findtext("Code")) == expected, (method, path)


class TestBuckets:
    def test_two_data_sets_are_two_buckets_and_a_key_opens_only_its_own(
        self, node: Node, store: ScriptedStore, elsewhere: ScriptedStore
    ) -> None:
        elsewhere.put("big", b"another")
        one, two = mounted(node, store, "one"), mounted(node, elsewhere, "two")
        assert [bucket["Name"] for bucket in one.client().list_buckets()["Buckets"]] == ["one"]
        assert (read(two, "big"), len(read(one, "big"))) == (b"another", BIG)
        assert refused(one.client().get_object, Bucket="two", Key="big") == "AccessDenied"
        assert refused(one.client().list_objects_v2, Bucket="two") == "AccessDenied"
        assert refused(one.client().list_objects_v2, Bucket="three") == "NoSuchBucket"
        assert one.client().head_bucket(Bucket="one")["ResponseMetadata"]["HTTPStatusCode"] == 200
        assert one.client().get_bucket_location(Bucket="one")["LocationConstraint"] is None
        node.ok("unmount", str(node.root / "one"))
        wait_for(lambda: refused(one.client().head_object, Bucket="one", Key="big") == "404")

    def test_a_listing_pages_through_thousands_of_keys(self, node: Node, scratch: Path) -> None:
        origin = scratch / "origin"
        for folder in range(25):
            (origin / f"d{folder:02}").mkdir(parents=True)
            for number in range(140):
                (origin / f"d{folder:02}" / f"{number:03}").write_bytes(b"x")
        node.mount(data_set("many", {"uri": f"file://{origin}/"}))
        ours = keys(node, "many")
        pages = list(ours.client().get_paginator("list_objects_v2").paginate(Bucket="many"))
        assert [page["KeyCount"] for page in pages] == [1000, 1000, 1000, 500]
        found = [entry["Key"] for page in pages for entry in page["Contents"]]
        assert found == [f"d{folder:02}/{number:03}" for folder in range(25) for number in range(140)]
        top = ours.client().list_objects_v2(Bucket="many", Delimiter="/", StartAfter="d03/139")
        assert [prefix["Prefix"] for prefix in top["CommonPrefixes"]] == [f"d{n:02}/" for n in range(4, 25)]

    def test_keys_that_a_folder_cannot_show_are_read_and_listed(
        self, node: Node, scripted_store: ScriptedStore
    ) -> None:
        objects = {"a": b"file", "a/b": b"below", "x//y": b"empty name", "../up": b"dots", "/lead": b"slash"}
        objects |= {"n" * 300: b"long", "dir/": b"marker", "a-b": b"before", "\u00fc %+&<": b"odd"}
        for key, data in objects.items():
            scripted_store.put(key, data)
        ours = mounted(node, scripted_store)
        assert sorted(os.listdir(node.root / "ds")) == ["a", "a-b", "dir", "\u00fc %+&<"]
        listed = ours.client().list_objects_v2(Bucket="ds")["Contents"]
        assert [entry["Key"] for entry in listed] == sorted(objects, key=str.encode)
        assert {key: read(ours, key) for key in objects} == objects
        assert {key: read(ours, key) for key in objects} == objects, "from the cache, too"
