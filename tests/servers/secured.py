"""A node whose admin API is served over TCP, with an authority that signs its clients."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers.certificates import Authority, Pair
from servers.node import STOKER, Node, data_set, running_node
from servers.s3 import free_port


@dataclass(frozen=True)
class Secured:
    """A node with an admin port."""

    node: Node
    port: int
    authority: Authority
    client: Pair

    def tls(self, client: Pair | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.ca))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if client is not None:
            context.load_cert_chain(client.cert, client.key)
        return context

    def connect(self, client: Pair | None) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=self.tls(client))

    def get(self, target: str, client: Pair | None) -> tuple[int, Any]:
        connection = self.connect(client)
        with contextlib.closing(connection):
            connection.request("GET", target)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def command(self, *arguments: str, client: Pair | None = None, ca: Path | None = None) -> tuple[int, str, str]:
        """`stoker --node`: exit code, output, errors."""
        pair = client or self.client
        options = ["--node", f"https://127.0.0.1:{self.port}", "--ca", str(ca or self.authority.ca)]
        options += ["--client-cert", str(pair.cert), "--client-key", str(pair.key)]
        env = {**self.node.env, "STOKER_RUN_DIR": str(self.node.root / "elsewhere")}
        done = subprocess.run(
            [*STOKER, *options, *arguments], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout, done.stderr


@contextlib.contextmanager
def secured(**settings: str) -> Iterator[Secured]:
    root = Path(tempfile.mkdtemp(prefix="stk-"))
    authority, port = Authority(root / "pki"), free_port()
    server = authority.sign("node", server=True)
    files = {
        "STOKER_ADMIN_PORT": str(port),
        "STOKER_ADMIN_CERT_FILE": str(server.cert),
        "STOKER_ADMIN_KEY_FILE": str(server.key),
        "STOKER_ADMIN_CLIENT_CA_FILE": str(authority.ca),
    }
    base = {"STOKER_FUSE_WORKERS": "2", "STOKER_FETCHERS": "1", "STOKER_IDLE_EXIT_SECONDS": "0"}
    with running_node(root, **base, **files, **settings) as node:
        (root / "origin").mkdir()
        (root / "origin" / "a.bin").write_bytes(b"a" * 5000)
        (root / "ds.json").write_text(json.dumps(data_set("ds", {"uri": f"file://{root}/origin/"})))
        node.ok("apply", "-f", str(root / "ds.json"))
        yield Secured(node, port, authority, authority.sign("operator", uri="spiffe://stoker/operator"))
    shutil.rmtree(root, ignore_errors=True)
