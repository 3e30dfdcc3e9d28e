"""`python -m stoker.jobs.index`: lists the sources of one DataSet and writes the manifest of that generation.

One JSON line on standard input is the order: `{"sources": [SourceSpec...], "directory": ..., "dataSet": "ns/name"}`.
Standard output has one JSON object a line: `{"state": "listing", "objects": n}` as it goes, at the end
`{"state": "answered", "statuses": {<status>: n}}` and `{"state": "done", "digest", "path", "files", "directories",
"bytes", "hidden", "contacted", "changed"}`, where `contacted` is the uri really listed of each source (its own or a
replica's) and `changed` counts the differences to the manifest `previous`, or `{"state": "failed", "error": ...}` and
exit code 1. Terminated, or when nobody reads its output any more, it ends and leaves nothing behind; when the process
that started it dies it is terminated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from types import FrameType
from typing import Any

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.jobs.parent import end_with_parent
from stoker.manifest.build import ManifestBuilder, ManifestSummary
from stoker.manifest.diff import Kind, count, diff
from stoker.manifest.format import ManifestSource, shown_uri
from stoker.manifest.manifest import Manifest
from stoker.node.plainlog import PlainLog
from stoker.sources import answered, open_source
from stoker.sources.base import Source, SourceSpec

_PARALLEL_SOURCES = 16  # each lists several prefixes at once itself
_REPORT_S = 0.2
_TERMINATED = 128 + signal.SIGTERM


@dataclass(frozen=True, slots=True)
class Order:
    """What to list, and the folder that the manifest goes to."""

    sources: tuple[SourceSpec, ...]
    directory: str
    data_set: str
    previous: str = ""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Order:
        return cls(
            tuple(map(SourceSpec.from_json, data["sources"])),
            data["directory"],
            data["dataSet"],
            data.get("previous", ""),
        )


class Index:
    """The listing of all sources into one builder."""

    def __init__(self, specs: Sequence[SourceSpec], builder: ManifestBuilder) -> None:
        self._specs = specs
        self._builder = builder
        self._slots = asyncio.Semaphore(_PARALLEL_SOURCES)
        self._objects = 0
        self._reported = time.monotonic()
        self.contacted = [spec.uri for spec in specs]

    async def run(self) -> None:
        """List all sources beside each other. Raises StokerError for the first that fails."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _cancel, asyncio.current_task())
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(len(self._specs)):
                    group.create_task(self._list(number))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _list(self, number: int) -> None:
        spec = self._specs[number]
        uris = (spec.uri, *spec.replicas)
        async with self._slots:
            for uri in uris:
                try:
                    await self._list_from(number, uri)
                    break
                except StokerError as error:
                    if error.reason is not Reason.SourceUnavailable or uri == uris[-1]:
                        raise
        if not self._builder.objects(number) and not spec.ignore_missing:
            raise _empty(spec)

    async def _list_from(self, number: int, uri: str) -> None:
        spec = self._specs[number]
        async with contextlib.aclosing(_Closing(open_source(replace(spec, uri=uri)))) as opened:
            source = opened.source
            self._builder.restart(number, manifest_source(spec, source, uri))
            self.contacted[number] = uri
            try:
                async for page in source.list():
                    self._builder.add(number, page)
                    self._report(len(page))
            except StokerError as error:
                if error.reason is not Reason.SourceNotFound or not spec.ignore_missing:
                    raise

    def _report(self, more: int) -> None:
        self._objects += more
        now = time.monotonic()
        if now - self._reported >= _REPORT_S:
            self._reported = now
            say({"state": "listing", "objects": self._objects})


class _Closing:
    """A source with the `aclose` that `aclosing` wants."""

    def __init__(self, source: Source) -> None:
        self.source = source

    async def aclose(self) -> None:
        await self.source.close()


def manifest_source(spec: SourceSpec, source: Source | None, contacted: str) -> ManifestSource:
    """How the manifest names a source; before it is opened, nothing is known of where it is."""
    origin, prefix = (source.origin, source.prefix) if source else ("", b"")
    return ManifestSource(spec.name, shown_uri(spec.uri), spec.path, origin, prefix, shown_uri(contacted))


def build(order: Order) -> tuple[ManifestSummary, list[str]]:
    """List and write; what was built, and the uri listed of each source. Raises StokerError, OSError."""
    unopened = [manifest_source(spec, None, spec.uri) for spec in order.sources]
    with ManifestBuilder(unopened, order.directory) as builder:
        index = Index(order.sources, builder)
        asyncio.run(index.run())
        # From here on nothing is awaited: a signal ends it where it is, and the files clean up after themselves.
        signal.signal(signal.SIGTERM, _terminate)
        return builder.finish(), index.contacted


def changes(previous: str, summary: ManifestSummary) -> dict[str, int]:
    """How many files are different from the generation before; none when there is no such, or it cannot be read."""
    counts: dict[Kind, int] = {"added": 0, "removed": 0, "changed": 0}
    if previous and previous != summary.path:
        with contextlib.suppress(StokerError, OSError), contextlib.ExitStack() as opened:
            old, new = (opened.enter_context(contextlib.closing(Manifest.open(p))) for p in (previous, summary.path))
            counts = count(diff(old, new))
    return {"added": counts["added"], "removed": counts["removed"], "modified": counts["changed"]}


_statuses: Counter[int] = Counter()
"""How often each status was answered; the daemon counts them."""


def _count(status: int) -> None:
    _statuses[status] += 1


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def main() -> int:
    """The exit code."""
    try:
        end_with_parent()
        order = Order.from_json(json.loads(sys.stdin.buffer.readline()))
        answered.listen(_count)
        try:
            summary, contacted = build(order)
        finally:
            with contextlib.suppress(BrokenPipeError):
                say({"state": "answered", "statuses": dict(_statuses)})
        changed = changes(order.previous, summary)
        say({"state": "done", **asdict(summary), "contacted": contacted, "changed": changed})
    except asyncio.CancelledError:
        return _TERMINATED
    except BrokenPipeError:
        return 1
    except StokerError as error:
        return _failed(error)
    except OSError as error:
        step = "check the space and the rights of the state folder."
        return _failed(StokerError(Reason.Internal, f"cannot write the manifest: {error}", next_step=step))
    except Exception as error:
        PlainLog("index-0").failed(type(error), error, error.__traceback__)
        return _failed(StokerError(Reason.Internal, f"the listing failed: {error!r}", next_step="see the node's log."))
    return 0


def _failed(error: StokerError) -> int:
    with contextlib.suppress(BrokenPipeError):
        say({"state": "failed", "error": error.to_json()})
    return 1


def _empty(spec: SourceSpec) -> StokerError:
    selected = " that its include and exclude select" if spec.include or spec.exclude else ""
    return StokerError(
        Reason.SourceEmpty,
        f"there is no object{selected} below {spec.uri}",
        place=f"source {spec.name}",
        next_step="check the uri, or set ignoreMissing: true on this source.",
    )


def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_TERMINATED)


if __name__ == "__main__":
    sys.exit(main())
