"""Generations of data sets on this node: listing the sources into a manifest by an index job, and what is kept."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import replace
from typing import Any

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.manifest.build import sweep
from stoker.node.catalogue import Catalogue, Generation, described, digest_of, manifests, time_of
from stoker.node.resolve import Resolved
from stoker.node.statefolder import data_set_of, name_of

__all__ = ["Generation", "Generations"]

_KEPT = 5  # generations of a data set that stay for `stoker manifest diff` when nothing mounts them


class Generations:
    """The manifests below one folder, a subfolder per data set."""

    def __init__(self, state_dir: str) -> None:
        self._root = os.path.join(state_dir, "manifests")
        self._catalogues: dict[str, Catalogue] = {}
        self._listing: Counter[str] = Counter()
        self.on_answered: Callable[[int, int], None] = lambda *_: None
        """Hears a status, and how often a store answered with it."""
        self.on_listed: Callable[[Resolved, float], None] = lambda *_: None
        """Hears of each listing that went well, when its generation is the current one, and when it began."""

    async def list_sources(self, resolved: Resolved, progress: Callable[[int], None]) -> Generation:
        """List the sources now; what was found is the current generation from here on. `progress` hears how many
        objects have been listed. Raises StokerError.

        A separate process: a million names are sorted there, while this one goes on answering.
        """
        name, began = resolved.name, time.monotonic()
        self._listing[name] += 1
        try:
            generation = self._current_from_now(resolved, await self._list(resolved, progress))
        finally:
            self._listing[name] -= 1
        self.on_listed(resolved, began)
        return generation

    async def _list(self, resolved: Resolved, progress: Callable[[int], None]) -> dict[str, Any]:
        folder, before = self._folder(resolved.name), self.current(resolved.name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        order = {
            "sources": [source.to_json() for source in resolved.sources],
            "directory": folder,
            "dataSet": resolved.name,
            "previous": before.path if before is not None else "",
        }
        async with job("index", order) as lines:
            async for line in lines:
                if line["state"] == "listing":
                    progress(int(line["objects"]))
                elif line["state"] == "answered":
                    for status, count in line["statuses"].items():
                        self.on_answered(int(status), int(count))
                elif line["state"] == "done":
                    return line
                else:
                    raise StokerError.from_json(line["error"])
        raise StokerError(Reason.Internal, "the index job ended without a result", next_step="see the node's log.")

    def _current_from_now(self, resolved: Resolved, found: dict[str, Any]) -> Generation:
        """Nothing is written when it is the generation that was there."""
        catalogue, sources = self._catalogue(resolved.name), _digest(resolved)
        before = catalogue.current
        if before is not None and before.digest == found["digest"]:
            generation = replace(before, contacted=tuple(found["contacted"]))
        else:
            generation = Generation.from_json({**found, "observed": time_of(time.time())})
        if (generation, sources) != (before, catalogue.sources):
            catalogue.becomes_current(generation, sources)
        return generation

    def names(self) -> list[str]:
        """The data sets of which there is a generation on disk."""
        try:
            return [data_set_of(name) for name in sorted(os.listdir(self._root))]
        except FileNotFoundError:
            return []

    def current(self, name: str) -> Generation | None:
        """The newest listing: what new mounts and the S3 endpoint show."""
        return self._catalogue(name).current

    def known(self, name: str) -> list[dict[str, Any]]:
        """The generations of a data set that are on disk, newest first."""
        found = ((described(path), mtime) for path, mtime in manifests(self._folder(name)))
        return [
            {
                "digest": generation.digest,
                "path": generation.path,
                "time": mtime,
                "files": generation.files,
                "directories": generation.directories,
                "bytes": generation.bytes,
            }
            for generation, mtime in found
            if generation is not None
        ]

    def over(self, name: str, used: Collection[str]) -> list[str]:
        """Manifests of generations that nothing uses any more, for which something may be in the cache.

        Of those that were listed from other sources nothing is let go: a document that is changed back finds it."""
        catalogue = self._catalogue(name)
        for path in used:
            catalogue.used_again(digest_of(path))
        found = []
        for path in catalogue.holding():
            if path in used:
                continue
            if os.path.exists(path) and catalogue.older[digest_of(path)] == catalogue.sources:
                found.append(path)
            else:
                catalogue.let_go(digest_of(path))
        return found

    def listed_so(self, resolved: Resolved) -> bool:
        """Whether the current generation was listed from just these sources."""
        return self._catalogue(resolved.name).sources == _digest(resolved)

    def let_go(self, name: str, path: str) -> None:
        """Nothing is in the cache any more for the sake of a generation alone."""
        self._catalogue(name).let_go(digest_of(path))

    def tidy(self, name: str, used: Collection[str]) -> None:
        """Remove old generations that nothing uses, all but a few, and what an interrupted listing left."""
        if self._listing[name]:
            return  # it calls for this when it is done
        catalogue = self._catalogue(name)
        keep = {*used, *catalogue.holding(), catalogue.current.path if catalogue.current else ""}
        for place, (path, _mtime) in enumerate(manifests(catalogue.folder)):
            if path not in keep and (place >= _KEPT or digest_of(path) not in catalogue.older):
                catalogue.remove(path)
        with contextlib.suppress(OSError):
            sweep(catalogue.folder)

    def forget(self, name: str) -> None:
        """Remove all generations of a data set."""
        self._catalogues.pop(name, None)
        shutil.rmtree(self._folder(name), ignore_errors=True)

    def _catalogue(self, name: str) -> Catalogue:
        found = self._catalogues.get(name)
        if found is None:
            found = self._catalogues[name] = Catalogue.load(self._folder(name))
        return found

    def _folder(self, name: str) -> str:
        return os.path.join(self._root, name_of(name))


def _digest(resolved: Resolved) -> str:
    """Of what a document says of its sources."""
    spec = resolved.data_set.to_document()["spec"]
    said = json.dumps([spec.get("type"), spec["sources"]], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


@contextlib.asynccontextmanager
async def job(module: str, order: dict[str, Any]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Run a job's process; what it is told, credentials too, comes by standard input, never as arguments."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"stoker.jobs.{module}"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    if process.stdin is None or process.stdout is None:
        raise StokerError(Reason.Internal, "the job has no pipes")
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
