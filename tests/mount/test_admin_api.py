"""The admin API of a real node: its document, its refusals, and that what it answers is what the document says."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import BaseModel

from servers.node import Node, data_set, running_node, wait_for
from stoker.node.admin.route import Route
from stoker.node.api import ROUTES

ORDER = {"document": data_set("ds", {"uri": "file:///nowhere/"})}


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    kind: str
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def send(node: Node, method: str, target: str, body: Any = None, kind: str = "application/json") -> Answer:
    """By the unix socket. A body of bytes is sent as it is."""
    connection = http.client.HTTPConnection("localhost", timeout=30)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(node.root / "run" / "admin.sock"))
        connection.sock = sock
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, target, data, {"Content-Type": kind} if data is not None else {})
        response = connection.getresponse()
        return Answer(response.status, response.headers.get_content_type(), response.headers, response.read())


@pytest.fixture(scope="module")
def served() -> Iterator[Node]:
    """A node for all tests of this file, with nothing mounted."""
    root = Path(tempfile.mkdtemp(prefix="stk-"))
    with running_node(root, STOKER_FUSE_WORKERS="2", STOKER_FETCHERS="1", STOKER_IDLE_EXIT_SECONDS="0") as node:
        (root / "origin").mkdir()
        (root / "origin" / "a.bin").write_bytes(b"a" * 5000)
        path = root / "ds.json"
        path.write_text(json.dumps(data_set("known", {"uri": f"file://{root}/origin/"})))
        node.ok("apply", "-f", str(path))
        yield node
    shutil.rmtree(root, ignore_errors=True)


REFUSED = [
    ("GET", "/v1/nothing", None, 404, "RouteNotFound", "/v1/nothing"),
    ("GET", "/v2/status", None, 404, "RouteNotFound", "/v2/status"),
    ("POST", "/v1/status", {}, 405, "MethodNotAllowed", "/v1/status"),
    ("POST", "/v1/mounts", b"{", 400, "NotJson", "body"),
    ("POST", "/v1/mounts", b'{"a": NaN}', 400, "NotJson", "body"),
    ("POST", "/v1/mounts", b"\xff\xfe", 400, "NotJson", "body"),
    ("POST", "/v1/mounts", b"[" * 100_000, 400, "NotJson", "body"),
    ("POST", "/v1/mounts", [], 422, "InvalidValue", "body"),
    ("POST", "/v1/mounts", b" " * ((4 << 20) + 1), 413, "BodyTooLarge", "body"),
    ("POST", "/v1/mounts", {**ORDER, "mountpoint": "/m", "force": 1}, 422, "UnknownField", "force"),
    ("POST", "/v1/mounts", ORDER, 422, "MissingField", "mountpoint"),
    ("POST", "/v1/mounts", {**ORDER, "mountpoint": "m"}, 422, "InvalidValue", "mountpoint"),
    (
        "PUT",
        "/v1/datasets",
        {"document": {**ORDER["document"], "spec": {}}},
        422,
        "MissingField",
        "document.spec.sources",
    ),
    ("GET", "/v1/jobs/none?version=x", None, 422, "InvalidValue", "version"),
    ("GET", "/v1/jobs/none?version=1&version=2", None, 422, "InvalidValue", "version"),
    ("GET", "/v1/status?verbose=1", None, 422, "UnknownField", "verbose"),
    ("GET", "/v1/why-slow", None, 422, "MissingField", "name"),
    ("DELETE", "/v1/mounts?mountpoint=/none", None, 404, "NotMounted", "/none"),
    ("DELETE", "/v1/datasets?name=default/none", None, 404, "DataSetNotFound", "default/none"),
]


@pytest.mark.parametrize(("method", "target", "body", "status", "reason", "place"), REFUSED)
def test_what_is_wrong_is_refused_with_its_reason_and_place(
    served: Node, method: str, target: str, body: Any, status: int, reason: str, place: str
) -> None:
    answer = send(served, method, target, body)
    found = answer.json
    assert (answer.status, answer.kind) == (status, "application/problem+json"), answer
    assert (found["status"], found["reason"], found["title"], found["place"]) == (status, reason, reason, place)
    assert found["detail"]
    assert found["nextStep"]


def test_a_wrong_content_type_is_refused_and_a_wrong_method_told_the_right_ones(served: Node) -> None:
    answer = send(served, "PUT", "/v1/datasets", ORDER, kind="text/yaml")
    assert (answer.status, answer.json["reason"]) == (415, "ContentTypeNotSupported")
    answer = send(served, "PATCH", "/v1/datasets", ORDER)
    assert (answer.status, answer.headers["Allow"]) == (405, "DELETE, GET, PUT")


def test_a_path_may_be_as_long_as_a_path_may_be(served: Node) -> None:
    path = "/" + "\u6f22" * 4095
    answer = send(served, "DELETE", f"/v1/mounts?mountpoint={quote(path)}")
    assert (answer.status, answer.json["place"]) == (404, path)


def test_a_long_poll_answers_when_its_time_is_over(served: Node) -> None:
    before = time.monotonic()
    assert send(served, "GET", "/v1/jobs/none?version=3&timeout=5").status == 404
    assert time.monotonic() - before < 4


def test_the_document_that_is_served_is_the_one_of_the_docs(served: Node) -> None:
    document = send(served, "GET", "/v1/openapi.json").json
    assert document == json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
    assert document["openapi"] == "3.1.0"
    assert served.ok("openapi") == json.dumps(document, indent=1) + "\n"


@pytest.mark.fuse
def test_every_answer_names_all_its_fields_in_the_document(node: Node, scratch: Path) -> None:
    """The models know each field that a node with a mount and a job answers with, and no other."""
    (scratch / "origin").mkdir()
    (scratch / "origin" / "a.bin").write_bytes(b"a" * 5000)
    document = data_set("ds", {"uri": f"file://{scratch}/origin/"}, pin=["**"])
    mountpoint = node.mount(document)
    (mountpoint / "a.bin").read_bytes()
    lines = send(node, "POST", "/v1/jobs", {"document": document}).body.splitlines()
    started = json.loads(lines[-1])
    route("POST", "/v1/jobs").model_validate(started)
    job = started["job"]["id"]
    wait_for(lambda: send(node, "GET", f"/v1/jobs/{job}").json["phase"] == "Succeeded")
    for method, target in [
        ("GET", "/v1/version"),
        ("GET", "/v1/status"),
        ("GET", f"/v1/jobs/{job}"),
        ("GET", "/v1/datasets"),
        ("GET", "/v1/datasets/document?name=default/ds"),
        ("GET", "/v1/generations?dataSet=default/ds"),
        ("GET", "/v1/why-slow?name=ds"),
        ("GET", "/healthz"),
        ("DELETE", f"/v1/jobs/{job}"),
        ("DELETE", f"/v1/mounts?mountpoint={mountpoint}&force=true"),
        ("DELETE", "/v1/datasets?name=default/ds"),
        ("POST", "/v1/shutdown"),
    ]:
        answer = send(node, method, target)
        assert answer.status == 200, (target, answer)
        shown = target.partition("?")[0].replace(job, "{id}")
        route(method, shown).model_validate(answer.json)


def route(method: str, path: str) -> type[BaseModel]:
    found: Route[Any, Any] = next(r for r in ROUTES if (r.method, r.path) == (method, path))
    assert found.answer is not None
    return found.answer
