"""The admin API over TCP: who gets in, who does not, and that those who hang hold nobody."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.certificates import Authority
from servers.node import data_set, running_node, wait_for
from servers.secured import Secured, secured


@pytest.fixture(scope="module")
def shared() -> Iterator[Secured]:
    """For the tests that leave it as it is."""
    with secured() as found:
        yield found


class TestWhoGetsIn:
    def test_who_is_signed_gets_in_and_all_routes_are_there(self, shared: Secured) -> None:
        status, answer = shared.get("/v1/status", shared.client)
        assert (status, [d["name"] for d in answer["dataSets"]]) == (200, ["default/ds"])
        assert shared.get("/healthz", shared.client)[0] == 200

    @pytest.mark.parametrize("target", ["/v1/version", "/v1/openapi.json", "/metrics", "/healthz", "/none"])
    def test_without_a_certificate_nothing_answers(self, shared: Secured, target: str) -> None:
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            shared.get(target, None)

    def test_another_authority_an_expired_and_a_server_certificate_are_refused(
        self, shared: Secured, tmp_path: Path
    ) -> None:
        wrong = [
            Authority(tmp_path / "other").sign("operator"),
            shared.authority.sign("expired", ended=True),
            shared.authority.sign("server", server=True),
        ]
        for pair in wrong:
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
                shared.get("/v1/version", pair)
        assert shared.get("/v1/version", shared.client)[0] == 200

    def test_plain_http_and_old_tls_get_no_answer(self, shared: Secured) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=10)
        with contextlib.closing(connection), pytest.raises((ConnectionError, http.client.HTTPException)):
            _ask(connection)
        context = shared.tls(shared.client)
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with (
            socket.create_connection(("127.0.0.1", shared.port), 10) as sock,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            context.wrap_socket(sock, server_hostname="127.0.0.1")

    def test_names_may_be_listed_and_who_is_not_there_is_told_so(self) -> None:
        with secured(STOKER_ADMIN_ALLOWED="someone, spiffe://stoker/operator") as found:
            assert found.get("/v1/version", found.client)[0] == 200
            assert found.get("/v1/version", found.authority.sign("someone"))[0] == 200
            status, problem = found.get("/v1/version", found.authority.sign("stranger"))
            assert (status, problem["reason"], problem["place"]) == (403, "CertificateRefused", "stranger")
            assert "STOKER_ADMIN_ALLOWED" in problem["nextStep"]


class TestRotation:
    def test_a_new_certificate_is_used_and_a_new_authority_ends_old_clients(self) -> None:
        with secured() as found:
            kept = found.connect(found.client)
            with contextlib.closing(kept):
                assert _ask(kept)[0] == 200
                before = _serial(found)
                found.authority.sign("node", server=True)
                wait_for(lambda: _serial(found) != before, what="the new certificate")
                assert _ask(kept)[0] == 200
                other = Authority(found.node.root / "pki", "other")
                os.replace(other.ca, found.authority.ca.with_suffix(".new"))
                os.replace(found.authority.ca.with_suffix(".new"), found.authority.ca)
                wait_for(lambda: _ask(kept)[0] == 403, what="the old client is refused")

    def test_a_certificate_that_cannot_be_read_changes_nothing(self) -> None:
        with secured() as found:
            Path(found.node.settings["STOKER_ADMIN_CERT_FILE"]).write_text("nonsense")
            wait_for(lambda: "certificates cannot be read" in found.node.log())
            assert found.get("/v1/version", found.client)[0] == 200


class TestWhoHangs:
    def test_those_that_say_nothing_hold_nobody_and_are_ended(self, shared: Secured) -> None:
        """Some never begin their handshake, some never send a request after it."""
        address = ("127.0.0.1", shared.port)
        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(socket.create_connection(address, 30)) for _ in range(40)]
            tls, idle = shared.tls(shared.client), []
            for _ in range(10):
                plain = stack.enter_context(socket.create_connection(address, 30))
                idle.append(stack.enter_context(tls.wrap_socket(plain, server_hostname="127.0.0.1")))
            idle[0].sendall(b"GET /v1/version HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            began = time.monotonic()
            assert shared.get("/v1/version", shared.client)[0] == 200
            assert time.monotonic() - began < 2
            for sock in silent:
                assert _end_of(sock)
            for sock in idle:
                assert _end_of(sock)
            assert time.monotonic() - began < 20

    def test_connections_are_bounded_and_room_comes_back(self, shared: Secured) -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(400):
                stack.enter_context(socket.create_connection(("127.0.0.1", shared.port), 30))
            assert json.loads(shared.node.ok("status", "--json"))["node"]
            wait_for(lambda: "there are too many connections" in shared.node.log())
        wait_for(lambda: _works(shared), what="an answer after them")


def test_the_curl_lines_of_the_docs_work(shared: Secured) -> None:
    page = (Path(__file__).parents[2] / "docs" / "ADMIN-API.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("curl ")]
    names = {
        "nodes.pem": shared.authority.ca,
        "operator.crt": shared.client.cert,
        "operator.key": shared.client.key,
        "node7:9443": f"127.0.0.1:{shared.port}",
    }
    words = ("default/ds", "openapi", "stoker_", "no job preload-1")
    for line, word in zip(lines, words, strict=True):
        for name, value in names.items():
            line = line.replace(name, str(value))
        done = subprocess.run([*shlex.split(line), "-sS"], capture_output=True, text=True, check=True, timeout=20)
        assert word in done.stdout, done


class TestCommand:
    def test_status_why_slow_and_keys_of_a_node_elsewhere(self, shared: Secured) -> None:
        code, out, err = shared.command("status", "--json")
        assert (code, json.loads(out)["dataSets"][0]["name"]) == (0, "default/ds"), err
        code, _out, err = shared.command("why-slow", "none")
        assert (code, err.split(":")[0]) == (1, "NotMounted")
        code, _out, err = shared.command("s3-credentials", "ds")
        assert (code, err.split(":")[0]) == (1, "S3Disabled")

    def test_what_is_refused_is_said_in_one_line(self, shared: Secured, tmp_path: Path) -> None:
        other = Authority(tmp_path / "other")
        cases = [
            (shared.command("status", client=other.sign("operator")), 1, "CertificateRefused", "--client-cert"),
            (shared.command("status", ca=other.ca), 1, "CertificateRefused", "--ca"),
            (shared.command("status", ca=tmp_path / "none"), 2, "InvalidUsage", str(tmp_path / "none")),
            (shared.command("unmount", "--all"), 2, "InvalidUsage", "this machine alone"),
        ]
        for (code, out, err), wanted, reason, words in cases:
            assert (code, out, err.count("\n")) == (wanted, "", 1), err
            assert err.startswith(f"{reason}: ")
            assert words in err


def test_a_node_without_its_certificate_does_not_start_and_says_why(scratch: Path) -> None:
    with running_node(scratch, STOKER_ADMIN_PORT="1", STOKER_FUSE_WORKERS="2") as node:
        (scratch / "ds.json").write_text(json.dumps(data_set("ds", {"uri": f"file://{scratch}/"})))
        done = node.run("apply", "-f", str(scratch / "ds.json"))
    assert (done.returncode, done.stderr.split(":")[:2]) == (1, ["NodeStartFailed", " STOKER_ADMIN_CERT_FILE"])


def _ask(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
    connection.request("GET", "/v1/version")
    response = connection.getresponse()
    return response.status, response.read()


def _serial(found: Secured) -> bytes | None:
    with (
        socket.create_connection(("127.0.0.1", found.port), 10) as plain,
        found.tls(found.client).wrap_socket(plain, server_hostname="127.0.0.1") as sock,
    ):
        return sock.getpeercert(binary_form=True)


def _end_of(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


def _works(found: Secured) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return found.get("/v1/version", found.client)[0] == 200
    return False
