"""The admin API from the command's side: HTTP over the node's unix socket, with the standard library alone.

Answers stay plain data: what they mean is decided where they are shown.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason

if TYPE_CHECKING:
    from stoker.cli.remote import Remote

_CONNECT_TIMEOUT_S = 10.0
# The node says something at least each second while it works; this long without a word, it hangs.
_SILENCE_S = 120.0
_POLL_S = 10.0


class _UnixConnection(http.client.HTTPConnection):
    """HTTP to a socket file."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_SILENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_CONNECT_TIMEOUT_S)
        self.sock.connect(self._path)
        self.sock.settimeout(_SILENCE_S)


class AdminClient:
    """One node's admin API (docs/design/admin-api.md). Every method raises StokerError, NodeNotRunning among others."""

    def __init__(self, path: str, remote: Remote | None = None) -> None:
        self._path = path
        self._remote = remote

    @property
    def host(self) -> str:
        """Of a node elsewhere; empty for this machine's."""
        return self._remote.host if self._remote is not None else ""

    def status(self) -> dict[str, Any]:
        return self._call("GET", "/v1/status")

    def mount(self, order: dict[str, Any], listed: Callable[[int], None]) -> dict[str, Any]:
        """Mount, and return what was mounted when it answers; `listed` hears the number of objects so far."""
        result: dict[str, Any] = self._stream("/v1/mounts", order, listed)["mount"]
        return result

    def unmount(self, mountpoint: str, *, force: bool) -> dict[str, Any]:
        return self._call("DELETE", "/v1/mounts", mountpoint=mountpoint, force=int(force))

    def start_job(self, order: dict[str, Any], listed: Callable[[int], None]) -> dict[str, Any]:
        job: dict[str, Any] = self._stream("/v1/jobs", order, listed)["job"]
        return job

    def job(self, job_id: str, version: int = -1) -> dict[str, Any]:
        """The job, as soon as it is newer than `version`; after some seconds in any case."""
        return self._call("GET", f"/v1/jobs/{job_id}", version=version, timeout=_POLL_S)

    def cancel_job(self, job_id: str) -> dict[str, Any]:
        return self._call("DELETE", f"/v1/jobs/{job_id}")

    def apply(self, order: dict[str, Any]) -> dict[str, Any]:
        """Tell the node what a DataSet may hold; the DataSet as it is known now."""
        found: dict[str, Any] = self._call("PUT", "/v1/datasets", order)["dataSet"]
        return found

    def document(self, name: str) -> dict[str, Any]:
        """The DataSet as the node was told of it."""
        found: dict[str, Any] = self._call("GET", "/v1/datasets/document", name=name)["document"]
        return found

    def refresh(self, order: dict[str, Any], listed: Callable[[int], None]) -> dict[str, Any]:
        """List the sources of a DataSet again; what was found."""
        found: dict[str, Any] = self._stream("/v1/refreshes", order, listed)["refresh"]
        return found

    def data_sets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call("GET", "/v1/datasets")["dataSets"]
        return found

    def forget(self, name: str) -> None:
        self._call("DELETE", "/v1/datasets", name=name)

    def s3_key(self, order: dict[str, Any]) -> dict[str, Any]:
        return self._call("POST", "/v1/s3/credentials", order)

    def revoke_s3_key(self, key_id: str) -> dict[str, Any]:
        return self._call("DELETE", f"/v1/s3/credentials/{quote(key_id, safe='')}")

    def why_slow(self, name: str, mountpoint: str, since_s: float) -> dict[str, Any]:
        """The data set of this name, else the one mounted at `mountpoint`."""
        return self._call("GET", "/v1/why-slow", name=name, mountpoint=mountpoint, since=since_s)

    def shutdown(self) -> None:
        self._call("POST", "/v1/shutdown")

    def _call(self, method: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        with self._response(method, path, body, query) as response:
            answer: dict[str, Any] = _parsed(response.read())
            return answer

    def _stream(self, path: str, order: dict[str, Any], listed: Callable[[int], None]) -> dict[str, Any]:
        """The last line of an answer in lines of JSON."""
        with self._response("POST", path, order, {}) as response:
            while line := response.readline():
                message = _parsed(line)
                if message["state"] == "failed":
                    raise _problem(message["error"])
                if message["state"] != "listing":
                    return message
                listed(int(message["objects"]))
        step = "run the command again; the node starts again by itself."
        raise StokerError(Reason.NodeNotRunning, "the node ended in the middle of its answer", next_step=step)

    @contextlib.contextmanager
    def _response(self, method: str, path: str, body: Any, query: dict[str, Any]) -> Iterator[http.client.HTTPResponse]:
        connection = self._remote.connection() if self._remote is not None else _UnixConnection(self._path)
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, target, data, headers)
            with connection.getresponse() as response:
                if response.status >= 400:
                    raise _problem(_parsed(response.read()))
                yield response
        except (OSError, http.client.HTTPException) as error:
            raise (self._remote.failure(error) if self._remote is not None else _failure(self._path, error)) from error
        finally:
            connection.close()


def _failure(path: str, error: Exception) -> StokerError:
    if isinstance(error, ConnectionRefusedError | FileNotFoundError):
        return _not_running(path)
    if isinstance(error, TimeoutError):
        step = "see its log; stoker node --stop ends it."
        return StokerError(Reason.Timeout, "the node does not answer", place=path, next_step=step)
    text = f"the connection to the node was lost ({error or type(error).__name__})"
    step = "run the command again; the node starts again by itself."
    return StokerError(Reason.NodeNotRunning, text, place=path, next_step=step)


def _not_running(path: str) -> StokerError:
    step = "a mount starts it: stoker mount -f dataset.yaml ./data"
    return StokerError(Reason.NodeNotRunning, "no node is running", place=path, next_step=step)


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        message = json.loads(data)
        if isinstance(message, dict):
            return message
    except ValueError:
        pass
    text = f"the node answered something else than a document: {data[:80]!r}"
    raise StokerError(Reason.Internal, text, next_step="is this command of the node's version? stoker --version")


def _problem(problem: dict[str, Any]) -> StokerError:
    return StokerError.from_json({**problem, "message": str(problem.get("message") or problem.get("detail", ""))})
