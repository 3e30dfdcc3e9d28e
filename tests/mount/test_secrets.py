"""Nothing that leaves a node shows a key, a token or the query of a url, whatever a store says and whoever fails."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.node import Node, data_set, processes_of, running_node, wait_for
from servers.scripted_store import Request, Response, Scenario, ScriptedStore

pytestmark = pytest.mark.fuse

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIACANARYOFENVIRON1",
    "AWS_SECRET_ACCESS_KEY": "canary/secret+of/the=environment",
    "AWS_SESSION_TOKEN": "canary-token-of-the-environment==",
}
SENT = {
    "access_key": "AKIACANARYOFSECRET02",
    "secret_key": "canary/secret+of/a=Secret",
    "session_token": "canary-token-of-a-Secret==",
}
QUERY = "X-Amz-Signature=canary0signature0of0a0url&X-Amz-Security-Token=canary%2Ftoken%2Fof%2Fa%2Furl"
CANARIES = [
    *ENVIRONMENT.values(),
    *SENT.values(),
    *(part.partition("=")[2] for part in QUERY.split("&")),
    "canary/token/of/a/url",
]


def refusal(status: int, text: str) -> Response:
    body = f"<Error><Code>AccessDenied</Code><Message>{text}</Message></Error>"
    return Response(status, {"Content-Type": "application/xml"}, body.encode())


def echoes(status: int, *headers: str) -> Scenario:
    """An error that says what it was sent."""
    return lambda request, _: refusal(
        status, f"{request.target} {' '.join(request.headers.get(name, '') for name in headers)}"
    )


def knows(status: int) -> Scenario:
    """An error of a store that knows the secret of whoever asks."""

    def say(request: Request, _: Response) -> Response:
        known = SENT if SENT["access_key"] in request.headers.get("authorization", "") else ENVIRONMENT
        return refusal(status, f"you are {' '.join(known.values())}, are you?")

    return say


@pytest.fixture
def talkative(scratch: Path) -> Iterator[Node]:
    """A node that logs all it can."""
    with running_node(scratch, STOKER_FUSE_WORKERS="2", STOKER_LOG_LEVEL="debug", **ENVIRONMENT) as node:
        yield node


def assert_clean(place: str, text: str) -> None:
    found = [canary for canary in CANARIES if canary in text]
    assert not found, f"{place} shows {found}: ...{text[max(0, text.index(found[0]) - 200) :][:400]}"


def everything_said(node: Node) -> Iterator[tuple[str, str]]:
    yield "status", node.ok("status", "--json")
    yield "why-slow", node.run("why-slow", "data", "--json").stdout
    yield "table", node.ok("status")
    for path in ("/v1/status", "/healthz", "/v1/version", "/v1/generations?dataSet=default/data", "/v1/jobs/preload-1"):
        yield path, json.dumps(node.api("GET", path))
    yield "/metrics", raw(node, "GET", "/metrics")
    yield "node.log", node.log()
    for pid in processes_of(node.root):
        with contextlib.suppress(OSError):
            yield f"cmdline of {pid}", Path(f"/proc/{pid}/cmdline").read_text()


def raw(node: Node, method: str, path: str, body: Any = None) -> str:
    """An answer as it came."""
    import http.client
    import socket

    connection = http.client.HTTPConnection("localhost", timeout=30)
    with contextlib.closing(connection), socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(node.root / "run" / "admin.sock"))
        connection.sock = sock
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json"})
        return connection.getresponse().read().decode()


def fill(store: ScriptedStore) -> None:
    """Objects that are refused in every way, each error full of secrets."""
    for status in (400, 403, 500):
        for name, scenario in (
            ("signature", echoes(status, "authorization")),
            ("token", echoes(status, "x-amz-security-token")),
            ("secret", knows(status)),
        ):
            store.put(f"{name}{status}", bytes(1000))
            store.on(f"{name}{status}", scenario)


def read_all(root: Path) -> int:
    """How many files failed."""
    failed = 0
    for path in sorted(root.iterdir()):
        try:
            path.read_bytes()
        except OSError:
            failed += 1
    return failed


def test_no_secret_is_shown(talkative: Node, scripted_store: ScriptedStore) -> None:
    fill(scripted_store)
    impatient = {"mount": {"retries": 0, "requestTimeout": "5s"}}
    outputs = []

    root = talkative.mount(data_set("data", scripted_store.source(), **impatient))
    assert read_all(root) == len(scripted_store.objects)
    document = json.dumps(data_set("data", scripted_store.source(), **impatient))
    outputs.append(talkative.run("preload", "-f", "-", stdin=document))

    scripted_store.on_list(knows(403), times=1)
    refused = data_set("refused", scripted_store.source("x/"))
    (talkative.root / "refused").mkdir()
    outputs.append(
        talkative.run("--debug", "mount", "-f", "-", str(talkative.root / "refused"), stdin=json.dumps(refused))
    )
    assert outputs[-1].returncode == 1
    assert "canary" not in outputs[-1].stderr

    scripted_store.put("url", bytes(1000))
    source = {"uri": f"https://host.example/bucket/url?{QUERY}", "endpoint": scripted_store.endpoint}
    web = talkative.mount(data_set("web", source, **impatient), "web")
    scripted_store.on("url", echoes(403))
    assert read_all(web) == 1
    outputs.append(talkative.run("manifest", "show", "web"))

    (talkative.root / "sent").mkdir()
    given = {"kind": "static", **SENT}
    sent = data_set("sent", {"name": "s", **scripted_store.source()}, **impatient)
    order = {"document": sent, "mountpoint": str(talkative.root / "sent"), "credentials": {"s": given}, "place": ""}
    answer = raw(talkative, "POST", "/v1/mounts", order)
    assert '"ready"' in answer
    assert read_all(talkative.root / "sent") >= len(scripted_store.objects) - 1
    bad = raw(talkative, "POST", "/v1/mounts", {**order, "credentials": {"s": {**given, "kind": ["odd"]}}})

    wait_for(lambda: "read failed" in talkative.log())
    for place, text in (("an answer", answer), ("a refusal", bad), *everything_said(talkative)):
        assert_clean(place, text)
    for done in outputs:
        assert_clean(f"{done.args}", done.stdout + done.stderr)


def test_every_line_of_the_log_has_one_shape(talkative: Node, scripted_store: ScriptedStore) -> None:
    fill(scripted_store)
    root = talkative.mount(data_set("data", scripted_store.source(), mount={"retries": 0, "requestTimeout": "1s"}))
    read_all(root)
    for role in ("worker", "fetcher", "daemon", "supervisor"):
        talkative.kill(talkative.pids(role)[0])
        wait_for(lambda role=role: talkative.pids(role), what=role)
        read_all(root)
    talkative.ok("unmount", str(root))
    talkative.ok("node", "--stop")
    wait_for(lambda: "node ended" in talkative.log())
    lines = [json.loads(line) for line in talkative.log().splitlines()]
    for line in lines:
        assert {"timestamp", "level", "event", "role"} <= set(line), line
        assert line["timestamp"].endswith("Z")
        assert line["level"] in ("debug", "info", "warning", "error")
    assert {"daemon-0", "fetcher-0", "worker-0", "supervisor-0"} & {line["role"] for line in lines} >= {
        "daemon-0",
        "supervisor-0",
    }
    mounted = next(line for line in lines if line["event"] == "mounted")
    assert mounted["data_set"] == "default/data"
    failed = next(line for line in lines if line["event"] == "read failed")
    assert (failed["data_set"], failed["reason"]) == ("default/data", "AccessDenied")
    ended = [line["process"] for line in lines if line["event"] == "process ended"]
    assert {"worker-0", "fetcher-0", "daemon-0"} <= {*ended} | {"worker-0"}


def test_the_level_is_obeyed(scratch: Path, scripted_store: ScriptedStore) -> None:
    scripted_store.put("f", b"1")
    with running_node(scratch, STOKER_LOG_LEVEL="error", STOKER_FUSE_WORKERS="2") as node:
        node.mount(data_set("data", scripted_store.source()))
        node.kill(node.pids("fetcher")[0])
        wait_for(lambda: node.pids("fetcher"))
        assert node.log() == ""
    with running_node(scratch / "other", STOKER_LOG_LEVEL="loud") as node:
        node.root.mkdir()
        done = node.run("status")
        assert "STOKER_LOG_LEVEL" in done.stderr
        assert done.returncode == 2
