"""Generations of data sets on this node: listing the sources into a manifest by an index job, and what is kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.manifest.manifest import Manifest
from stoker.node.resolve import Resolved

_SUFFIX = ".manifest"
_KEPT = 5  # generations of a data set that stay for `stoker manifest diff` when nothing mounts them


@dataclass(frozen=True, slots=True)
class Generation:
    """One listing of a data set. `contacted` has, per source, the uri that was really listed (a replica perhaps)."""

    digest: str
    path: str
    contacted: tuple[str, ...] = ()


class Generations:
    """The manifests below one folder, a subfolder per data set."""

    def __init__(self, state_dir: str) -> None:
        self._root = os.path.join(state_dir, "manifests")
        self.on_answered: Callable[[int, int], None] = lambda *_: None
        """Hears a status, and how often a store answered with it."""

    async def list_sources(self, resolved: Resolved, progress: Callable[[int], None]) -> Generation:
        """List the sources now. `progress` hears how many objects have been listed. Raises StokerError.

        A separate process: a million names are sorted there, while this one goes on answering.
        """
        folder = self._folder(resolved.name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        specs = [source.to_json() for source in resolved.sources]
        order = {"sources": specs, "directory": folder, "dataSet": resolved.name}
        async with _index_job(order) as lines:
            async for line in lines:
                if line["state"] == "listing":
                    progress(int(line["objects"]))
                elif line["state"] == "answered":
                    for status, count in line["statuses"].items():
                        self.on_answered(int(status), int(count))
                elif line["state"] == "done":
                    return Generation(line["digest"], line["path"], tuple(line.get("contacted", ())))
                else:
                    raise StokerError.from_json(line["error"])
        raise StokerError(Reason.Internal, "the index job ended without a result", next_step="see the node's log.")

    def known(self, name: str) -> list[dict[str, Any]]:
        """The generations of a data set that are on disk, newest first."""
        found = []
        for path, mtime in self._files(name):
            with contextlib.suppress(StokerError, OSError), contextlib.closing(Manifest.open(path)) as manifest:
                found.append(
                    {
                        "digest": manifest.digest,
                        "path": path,
                        "time": mtime,
                        "files": manifest.files,
                        "directories": manifest.directories,
                        "bytes": manifest.bytes,
                    }
                )
        return found

    def tidy(self, name: str, used: Iterable[str]) -> None:
        """Remove old generations of a data set that nothing uses."""
        in_use = set(used)
        for path, _mtime in self._files(name)[_KEPT:]:
            if path not in in_use:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)

    def _folder(self, name: str) -> str:
        return os.path.join(self._root, name.replace("/", "."))

    def _files(self, name: str) -> list[tuple[str, float]]:
        try:
            entries = [entry for entry in os.scandir(self._folder(name)) if entry.name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return []
        return sorted(((entry.path, entry.stat().st_mtime) for entry in entries), key=lambda f: f[1], reverse=True)


@contextlib.asynccontextmanager
async def _index_job(order: dict[str, Any]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Run the index job; its credentials come by standard input, never as arguments."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stoker.jobs.index"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    if process.stdin is None or process.stdout is None:
        raise StokerError(Reason.Internal, "the index job has no pipes")
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.write_eof()
    try:
        yield _lines(process.stdout)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        await process.wait()


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    async for line in stream:
        yield json.loads(line)
