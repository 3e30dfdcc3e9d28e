"""Which objects only an old generation has: what the cache may let go when nothing shows that generation any more.

A process of its own. Standard input: one line `{"old": <manifest>, "others": [<manifest>, ...]}`, of which the first of
`others` is the current generation. Standard output: lines `{"oids": [<hex>, ...]}`, and `{"state": "done"}` at the end.
Memory is bounded: the generations are walked side by side.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence

from stoker.api.errors import StokerError
from stoker.fetch.files import file_of
from stoker.jobs.parent import end_with_parent
from stoker.manifest.diff import diff
from stoker.manifest.manifest import Manifest
from stoker.s3.listing import find

_BATCH = 1024


def unneeded(old: Manifest, others: Sequence[Manifest]) -> Iterator[bytes]:
    """The ids of the objects of `old`, hidden ones too, that none of `others` has. Raises StokerError ManifestCorrupt.

    An object that was listed at another replica is the same one: it is compared by key, size and etag."""
    for key, inode in _candidates(old, others[0]):
        file = file_of(old, inode, "Cache")
        if file.cacheable and not any(_has(other, key, file.size, file.version.etag) for other in others):
            yield file.oid


def _candidates(old: Manifest, current: Manifest) -> Iterator[tuple[bytes, int]]:
    for change in diff(old, current):
        if change.old is not None and (inode := find(old, change.path)) is not None:
            yield change.path, inode
    for row in old.hidden_objects.since(b""):
        yield row.key, old.hidden_inode(row.number)


def _has(manifest: Manifest, key: bytes, size: int, etag: str) -> bool:
    inode = find(manifest, key)
    if inode is None:
        return False
    version = manifest.object(inode).version
    return (version.size, version.etag) == (size, etag)


def _say(oids: list[bytes]) -> None:
    print(json.dumps({"oids": [oid.hex() for oid in oids]}), flush=True)


def main() -> int:
    """The exit code."""
    end_with_parent()
    order = json.loads(sys.stdin.buffer.readline())
    try:
        with contextlib.ExitStack() as opened:
            old, *others = (
                opened.enter_context(contextlib.closing(Manifest.open(path)))
                for path in (order["old"], *order["others"])
            )
            batch: list[bytes] = []
            for oid in unneeded(old, others):
                batch.append(oid)
                if len(batch) == _BATCH:
                    _say(batch)
                    batch = []
            _say(batch)
            print(json.dumps({"state": "done"}), flush=True)
    except BrokenPipeError:
        return 1
    except (StokerError, OSError) as error:
        print(f"generations cannot be compared: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
