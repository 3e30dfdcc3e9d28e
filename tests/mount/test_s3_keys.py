"""The S3 endpoint of a real node: who may read, and what happens when its processes die."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from servers.node import Node, data_set, processes_of, wait_for
from servers.s3 import Keys, free_port, from_source, keys, mounted, read, refused, send, serving_node
from servers.scripted_store import ScriptedStore

pytestmark = pytest.mark.fuse


@pytest.fixture
def node(s3_node: Node) -> Node:
    return s3_node


@pytest.fixture
def store(s3_store: ScriptedStore) -> ScriptedStore:
    return s3_store


class TestKeys:
    def test_a_presigned_url_works_in_plain_urllib_until_it_ends(self, node: Node, store: ScriptedStore) -> None:
        ours = mounted(node, store)
        params = {"Bucket": "ds", "Key": "d/small", "ResponseContentType": "text/plain"}
        url = ours.client().generate_presigned_url("get_object", Params=params, ExpiresIn=60)
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert (answer.read(), answer.headers["Content-Type"]) == (b"hello", "text/plain")
        for changed in (url.replace("d/small", "big"), url.replace("X-Amz-Expires=60", "X-Amz-Expires=600")):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(changed, timeout=10)

    def test_a_request_that_is_not_signed_or_wrongly_is_refused(self, node: Node, store: ScriptedStore) -> None:
        ours = mounted(node, store)
        get = {"Bucket": "ds", "Key": "d/small"}
        assert refused(replace(ours, secret="wrong").client().get_object, **get) == "SignatureDoesNotMatch"
        assert refused(replace(ours, key="AKIAIOSFODNN7EXAMPLE").client().get_object, **get) == "InvalidAccessKeyId"
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"{ours.endpoint}/ds/d/small", timeout=10)
        assert from_source(node) == 0

    def test_an_expired_or_revoked_key_is_refused_and_another_of_the_reader_goes_on(
        self, node: Node, store: ScriptedStore
    ) -> None:
        ours, short, gone = mounted(node, store), keys(node, "ds", expiresSeconds=1), keys(node, "ds")
        assert read(gone, "d/small") == b"hello"
        assert node.ok("s3-credentials", "ds", "--revoke", gone.key).startswith(f"revoked {gone.key}")
        get = {"Bucket": "ds", "Key": "d/small"}
        assert refused(gone.client().get_object, **get) == "InvalidAccessKeyId"
        wait_for(lambda: "ExpiredToken" in send(short, "GET", "/ds/d/small")[2].decode(), what="the key ends")
        assert read(ours, "d/small") == b"hello"

    def test_a_key_and_a_revocation_survive_a_restart_of_the_node(
        self, s3_own: Node, scratch: Path, store: ScriptedStore
    ) -> None:
        node = s3_own
        ours, gone = mounted(node, store), keys(node, "ds")
        node.ok("s3-credentials", "ds", "--revoke", gone.key)
        node.ok("node", "--stop")
        wait_for(lambda: not processes_of(scratch), what="the node ends")
        node.mount(data_set("ds", store.source()), "ds")
        assert read(ours, "d/small") == b"hello"
        assert refused(gone.client().get_object, Bucket="ds", Key="d/small") == "InvalidAccessKeyId"

    def test_secrets_are_in_no_log_and_no_argument(self, node: Node, store: ScriptedStore) -> None:
        ours = mounted(node, store)
        read(ours, "d/small")
        seen = node.log() + "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in processes_of(node.root))
        assert ours.secret not in seen
        assert (node.root / "state" / "s3" / "secret").stat().st_mode & 0o777 == 0o600


class TestProcess:
    def test_clients_go_on_when_the_process_is_killed_again_and_again(self, s3_own: Node, store: ScriptedStore) -> None:
        node = s3_own
        ours, data = mounted(node, store), store.objects[b"big"].data
        client, wrong, done = ours.client(attempts=10), [], threading.Event()

        def work() -> None:
            while not done.is_set():
                try:
                    got = client.get_object(Bucket="ds", Key="big", Range="bytes=1000000-3999999")["Body"].read()
                    if got != data[1_000_000:4_000_000]:
                        wrong.append("another body")
                except Exception as error:
                    # A body that breaks off is the reader's to ask again; boto3 does not.
                    if "IncompleteRead" not in repr(error) and "Connection" not in repr(error):
                        wrong.append(repr(error))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(6):
            before = wait_for(lambda: node.pids("s3"))
            node.kill(before[0])
            wait_for(lambda old=before: node.pids("s3") and node.pids("s3") != old)
            assert read(replace(ours), "d/small") == b"hello", "the socket is kept: nobody is refused"
        done.set()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_several_processes_share_the_port(self, scratch: Path, store: ScriptedStore) -> None:
        with serving_node(scratch, STOKER_S3_WORKERS="3") as node:
            ours = mounted(node, store)
            wait_for(lambda: len(node.pids("s3")) == 3)
            for _ in range(3):
                node.kill(node.pids("s3")[0])
                assert {read(ours, "d/small") for _ in range(20)} == {b"hello"}
            wait_for(lambda: len(node.pids("s3")) == 3)

    @pytest.mark.slow
    @pytest.mark.parametrize("role", ["daemon", "supervisor", "fetcher"])
    def test_other_processes_of_the_node_may_die(self, s3_own: Node, store: ScriptedStore, role: str) -> None:
        node = s3_own
        ours = mounted(node, store)
        assert read(ours, "big") == store.objects[b"big"].data
        for _ in range(2):
            before = wait_for(lambda: node.pids(role))
            node.kill(before[0])
            assert read(ours, "d/small") == b"hello"
            assert read(ours, "big") == store.objects[b"big"].data
            wait_for(lambda old=before: node.pids(role) and node.pids(role) != old)
        node.kill(node.pids("s3")[0])
        assert read(ours, "big") == store.objects[b"big"].data
        store.put("new", b"mounted later")
        two = mounted(node, store, "two")
        wait_for(lambda: send(two, "GET", "/two/new")[2] == b"mounted later", what="sessions still reach the process")

    @pytest.mark.slow
    def test_supervisor_and_daemon_may_die_together(self, s3_own: Node, store: ScriptedStore) -> None:
        node, ours = s3_own, mounted(s3_own, store)
        before = [node.pids(role)[0] for role in ("supervisor", "daemon", "s3")]
        for pid in before:
            node.kill(pid)
        wait_for(lambda: all(node.pids(role) for role in ("supervisor", "daemon", "s3")), what="a worker starts them")
        assert read(ours, "d/small") == b"hello"
        store.put("new", b"mounted later")
        two = mounted(node, store, "two")
        wait_for(lambda: send(two, "GET", "/two/new")[2] == b"mounted later", what="sessions reach the process")

    def test_a_port_that_is_taken_is_said_at_once(self, scratch: Path, store: ScriptedStore) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            with serving_node(scratch, STOKER_S3_PORT=port) as node:
                (scratch / "data").mkdir()
                document = json.dumps(data_set("ds", store.source()))
                done = node.run("mount", "-f", "-", str(scratch / "data"), stdin=document)
        assert done.returncode == 1
        assert f"NodeStartFailed: 127.0.0.1:{port}: the S3 endpoint cannot listen there" in done.stderr

    def test_the_command_prints_lines_for_a_shell(self, node: Node, store: ScriptedStore) -> None:
        mounted(node, store)
        lines = node.ok("s3-credentials", "ds", "--expires", "12h", "--reader", "training-7")
        shell = f'{lines}env | grep -E "^(AWS|STOKER_S3)_" | sort'
        said = subprocess.run(
            ["sh", "-c", shell], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True
        )
        env = dict(line.split("=", 1) for line in said.stdout.splitlines())
        ours = Keys(
            env["AWS_ENDPOINT_URL"], env["STOKER_S3_BUCKET"], env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"]
        )
        assert read(ours, "d/small") == b"hello"
        assert json.loads(node.ok("s3-credentials", "ds", "--json"))["reader"] == getpass.getuser()
        for arguments, reason in ((["none"], "NotMounted"), (["ds", "--revoke", "x"], "InvalidValue")):
            done = node.run("s3-credentials", *arguments)
            assert (done.returncode, done.stderr.split(":")[0]) == (2 if reason == "InvalidValue" else 1, reason)
        assert node.run("s3-credentials", "ds", "--expires", "soon").stderr.startswith("InvalidValue: --expires: ")

    def test_without_a_port_there_is_no_endpoint(self, scratch: Path, store: ScriptedStore) -> None:
        with serving_node(scratch, STOKER_S3_PORT="0") as node:
            node.mount(data_set("ds", store.source()), "ds")
            done = node.run("s3-credentials", "ds")
            assert node.pids("s3") == []
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("S3Disabled: ")

    def test_a_runtime_says_where_s3_is_served(self, scratch: Path, store: ScriptedStore) -> None:
        port = free_port()
        tier = {"path": str(scratch / "cache"), "quota": "1Gi"}
        runtime = {"apiVersion": "stoker.dev/v1alpha1", "kind": "CacheRuntime", "metadata": {"name": "here"}}
        runtime["spec"] = {"tiers": [tier], "s3": {"port": port}}
        with serving_node(scratch, STOKER_S3_PORT="0") as node:
            (scratch / "ds").mkdir()
            text = f"{json.dumps(runtime)}\n---\n{json.dumps(data_set('ds', store.source()))}\n"
            node.ok("mount", "-f", "-", str(scratch / "ds"), stdin=text)
            ours = keys(node, "ds")
            assert ours.endpoint == f"http://127.0.0.1:{port}"
            assert read(ours, "d/small") == b"hello"
