"""The S3 endpoint as the daemon sees it: its sockets, its processes, and the keys that it gives to readers.

Requests are answered by processes of the role `s3` (`stoker.s3.process`); nothing of their data passes through here.
"""

from __future__ import annotations

import os
import pwd
import socket
import time
from typing import Any

from stoker.api.errors import StokerError
from stoker.api.names import full_name
from stoker.api.reasons import Reason
from stoker.fetch.counters import create_counters
from stoker.node.keeper import Keeper
from stoker.node.sessions import Sessions
from stoker.node.store import Entry, Share
from stoker.node.tiers import s3_port
from stoker.s3.keys import KeyRing, new_key, parse_key
from stoker.s3.names import bucket_of

REGION = "us-east-1"
"""What clients are told; any other is accepted as well."""

_BACKLOG = 1024
_MOST_EXPIRES = (1 << 32) - 1


class Endpoint:
    """Off when the configured port is 0."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._bind, self._port, self._processes = str(config["s3_bind"]), 0, 0
        self._ring = KeyRing(config["state_dir"])

    async def open(self, keeper: Keeper) -> None:
        """Listen, and keep what the processes need. Raises StokerError when the address cannot be had."""
        self._port = s3_port(self._config)
        self._processes = int(self._config["s3_workers"]) if self._port else 0
        if not self._processes:
            return
        self._ring.make()
        if "s3" not in keeper.entries:  # else an earlier daemon listens already, and clients may wait there
            await keeper.keep(Entry("s3", self._listen(), {}, (Share("s3", ("listen.%d",)),)))
        for index in range(self._processes):
            key = f"counters.s3.{index}"
            if key not in keeper.entries:
                await keeper.keep(Entry(key, {"counters": create_counters()}, {}, (Share("s3", ("counters",), index),)))

    @property
    def roles(self) -> dict[str, int]:
        """For the supervisor."""
        return {"s3": self._processes} if self._processes else {}

    @property
    def url(self) -> str:
        """Empty when it is off."""
        bound = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._bind, self._bind)  # noqa: S104 - what a client of this machine asks
        host = f"[{bound}]" if ":" in bound else bound
        return f"http://{host}:{self._port}" if self._processes else ""

    def grant(self, sessions: Sessions, order: dict[str, Any]) -> dict[str, Any]:
        """A key for one DataSet that is mounted. Raises StokerError S3Disabled, NotMounted."""
        self._check_on()
        data_set = full_name(order["dataSet"])
        if not sessions.mounts_of(data_set):
            step = "mount it first; see what is mounted: stoker status"
            raise StokerError(Reason.NotMounted, "no DataSet of that name is mounted", place=data_set, next_step=step)
        seconds = int(order.get("expiresSeconds", 0))
        expires = int(time.time()) + seconds if seconds else 0
        if seconds < 0 or expires > _MOST_EXPIRES:
            raise StokerError(
                Reason.InvalidValue, f"a key cannot be good for {seconds} s", next_step="0 means for ever."
            )
        reader = str(order.get("reader") or _user())
        key = new_key(reader, data_set, expires=expires, bypass=bool(order.get("bypass")))
        return {
            "endpoint": self.url,
            "region": REGION,
            "bucket": bucket_of(data_set),
            "dataSet": data_set,
            "reader": key.reader,
            "accessKeyId": key.id,
            "secretAccessKey": self._ring.secret_of(key.id),
            "expires": expires,
            "bypass": key.bypass,
        }

    def revoke(self, key_id: str) -> dict[str, Any]:
        """No process accepts the key any more when this returns. Raises StokerError InvalidValue."""
        self._check_on()
        key = parse_key(key_id)
        if key is None:
            step = "give the access key id, as stoker s3-credentials printed it."
            raise StokerError(Reason.InvalidValue, "that is no access key of Stoker", place=key_id, next_step=step)
        self._ring.revoke(key)
        return {"revoked": key.id, "reader": key.reader}

    def _check_on(self) -> None:
        if not self._processes:
            step = "end the node (stoker node --stop), set STOKER_S3_PORT=9600, and mount again."
            raise StokerError(Reason.S3Disabled, "this node does not serve S3", next_step=step)

    def _listen(self) -> dict[str, int]:
        """One socket for each process. Several share the port; nobody else may have it."""
        family = socket.AF_INET6 if ":" in self._bind else socket.AF_INET
        try:
            with _bound(family, self._bind, self._port, shared=False) as alone:
                if self._processes == 1:
                    alone.listen(_BACKLOG)
                    return {"listen.0": alone.detach()}
            fds = {}
            for index in range(self._processes):
                with _bound(family, self._bind, self._port, shared=True) as sock:
                    sock.listen(_BACKLOG)
                    fds[f"listen.{index}"] = sock.detach()
            return fds
        except OSError as error:
            text = f"the S3 endpoint cannot listen there ({os.strerror(error.errno or 0).lower()})"
            step = "set STOKER_S3_PORT to a free port, or to 0."
            raise StokerError(
                Reason.NodeStartFailed, text, place=f"{self._bind}:{self._port}", next_step=step
            ) from error


def _bound(family: int, host: str, port: int, *, shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
