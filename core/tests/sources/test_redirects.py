"""Where a store sends a reader with `3xx`: followed without secrets, or refused. No host gets what is not its own."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from servers.scenarios import redirects
from servers.scripted_store import BUCKET
from servers.seaweedfs import ADMIN
from stoker.api.reasons import Reason
from stoker.sources.base import Credentials, SourceError
from stoker.sources.s3_reads import client_options

DATA = bytes(range(256)) * 4096
TOKEN = "the-session-token"
IDENTITIES = {
    "keys": Credentials("static", *ADMIN),
    "token": Credentials("static", *ADMIN, TOKEN),
    "anonymous": Credentials(),
}


@pytest.fixture
def other(elsewhere):
    elsewhere.put("moved", DATA)
    return elsewhere


@pytest.fixture(params=["plain", "a//b"])
def key(request):
    """Read by obstore, and by requests of our own."""
    return request.param


async def read_all(source, listed, read, key):
    (entry,) = [found for found in await listed(source) if found.key == key.encode()]
    return await read(source, entry)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("identity", IDENTITIES)
async def test_another_host_gets_no_secret(scripted, other, opened, listed, read, identity, status, key):
    scripted.put(key, DATA)
    scripted.store.on(key, redirects(other.url("moved"), status))
    source = opened(scripted.spec(credentials=IDENTITIES[identity]))
    if identity == "token" or key != "plain":
        with pytest.raises(SourceError) as failed:
            await read_all(source, listed, read, key)
        assert failed.value.reason == Reason.SourceUnavailable
        assert TOKEN not in str(failed.value)
        assert other.requests == []
    else:
        assert await read_all(source, listed, read, key) == DATA
    sent = [value for request in other.requests for value in request.headers.values()]
    assert not [value for value in sent if TOKEN in value or "Signature" in value or ADMIN[0] in value]
    (asked,) = scripted.store.of(key)
    assert asked.headers.get("x-amz-security-token") == (TOKEN if identity == "token" else None)


async def test_the_refusal_says_what_to_do(scripted, other, opened, listed, read):
    scripted.put("plain", DATA)
    scripted.store.on("plain", redirects(other.url("moved")))
    with pytest.raises(SourceError) as failed:
        await read_all(opened(scripted.spec(credentials=IDENTITIES["token"])), listed, read, "plain")
    assert "redirects to another host" in failed.value.message
    assert "endpoint" in failed.value.next_step


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_the_same_host_is_followed(scripted, opened, listed, read, identity):
    scripted.put("plain", DATA)
    scripted.put("moved", DATA)
    scripted.store.on("plain", redirects(f"/{BUCKET}/moved", 307))
    source = opened(scripted.spec(credentials=IDENTITIES[identity]))
    assert await read_all(source, listed, read, "plain") == DATA
    assert scripted.store.count("moved") == 1


async def test_what_comes_from_elsewhere_must_be_the_listed_version(scripted, other, opened, listed, read):
    scripted.put("plain", DATA)
    other.put("moved", DATA[::-1])
    scripted.store.on("plain", redirects(other.url("moved")))
    with pytest.raises(SourceError) as failed:
        await read_all(opened(scripted.spec()), listed, read, "plain")
    assert failed.value.reason == Reason.SourceChanged


async def test_through_a_proxy_too(scripted, other, opened, listed, read, monkeypatch):
    """The proxy stands where obstore could be held back; the scripted store plays it, and answers for any host."""
    scripted.put("plain", DATA)
    monkeypatch.setenv("http_proxy", scripted.store.endpoint)
    monkeypatch.setenv("no_proxy", "")
    source = opened(scripted.spec(endpoint="http://store.example", credentials=IDENTITIES["token"]))
    assert await read_all(source, listed, read, "plain") == DATA
    scripted.store.on("plain", redirects("http://other.example/bucket/plain"), times=1)
    with pytest.raises(SourceError) as failed:
        await read_all(source, listed, read, "plain")
    assert failed.value.reason == Reason.SourceUnavailable
    assert {urlsplit(request.target).hostname for request in scripted.store.requests} == {"store.example"}


@pytest.mark.parametrize("fenced", [True, False])
def test_none_leads_from_https_to_http(fenced):
    """A certificate that obstore would trust cannot be made here: this option is what holds it back."""
    assert client_options("https://store.example/bucket", fenced=fenced)["allow_http"] is False
