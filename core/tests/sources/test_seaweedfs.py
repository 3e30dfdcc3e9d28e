"""Real refusals by a real S3 server: keys that are wrong, unknown, or not allowed; and If-Match as it is meant."""

from __future__ import annotations

import pytest

from servers.seaweedfs import ADMIN, READER, SeaweedFS
from stoker.api.reasons import Reason
from stoker.sources.base import Credentials, SourceError, SourceSpec


@pytest.fixture(scope="module")
def buckets(seaweedfs: SeaweedFS):
    """One that the reader may read, one that it may not."""
    names = seaweedfs.new_bucket("shared"), seaweedfs.new_bucket("closed")
    for name in names:
        seaweedfs.client().put_object(Bucket=name, Key="d/k", Body=b"data")
    return names


def spec(server, bucket, keys=None, **more):
    credentials = Credentials("static", *keys) if keys else Credentials()
    return SourceSpec("source", f"s3://{bucket}/", endpoint=server.endpoint, credentials=credentials, **more)


async def test_rights_are_those_of_the_keys(seaweedfs, buckets, opened, listed, read):
    shared, closed = buckets
    source = opened(spec(seaweedfs, shared, READER))
    (entry,) = await listed(source)
    assert await read(source, entry) == b"data"
    denied = opened(spec(seaweedfs, closed, READER))
    for attempt in (listed(denied), read(denied, entry), denied.head(b"d/k")):
        with pytest.raises(SourceError) as failed:
            await attempt
        assert failed.value.reason == Reason.AccessDenied
        assert "ader" in failed.value.message


@pytest.mark.parametrize("keys", [(ADMIN[0], "wrong"), ("nobody", "secret")])
async def test_wrong_keys_are_denied_and_what_to_check_is_said(seaweedfs, buckets, opened, listed, keys):
    with pytest.raises(SourceError) as failed:
        await listed(opened(spec(seaweedfs, buckets[0], keys)))
    assert failed.value.reason == Reason.AccessDenied
    assert "secret" in failed.value.next_step
    assert keys[1] not in failed.value.message


async def test_anonymous_is_told_to_bring_credentials(seaweedfs, buckets, opened, listed):
    for source in (spec(seaweedfs, buckets[0]), spec(seaweedfs, buckets[0], ADMIN, options=(("unsigned", "true"),))):
        with pytest.raises(SourceError) as failed:
            await listed(opened(source))
        assert failed.value.reason == Reason.CredentialsMissing
        assert "anonymous" in failed.value.message


async def test_cl02_an_unknown_bucket_is_not_an_empty_one(seaweedfs, opened, listed):
    with pytest.raises(SourceError) as failed:
        await listed(opened(spec(seaweedfs, "no-such-bucket", ADMIN)))
    assert failed.value.reason == Reason.BucketNotFound
