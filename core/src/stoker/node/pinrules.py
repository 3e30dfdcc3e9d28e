"""Which files a DataSet pins: the globs of its document, and those that were pinned and unpinned since. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stoker.api.globs import Globs
from stoker.cache.pinjobs import Wanted
from stoker.fetch.files import file_of
from stoker.manifest.manifest import Manifest

ALL = "**"


@dataclass(frozen=True, slots=True)
class PinRules:
    """A file is pinned when the last rule that matches its path says so. `spec`: of the document; `later`: (pin or
    unpin, glob) by command, in their order."""

    spec: tuple[str, ...] = ()
    later: tuple[tuple[bool, str], ...] = ()

    @property
    def any(self) -> bool:
        """Whether something may be pinned at all."""
        return bool(self.spec) or any(pin for pin, _glob in self.later)

    def of_document(self, globs: Sequence[str]) -> PinRules:
        """With what a document says; when that is new, what was said by command does not count any more."""
        return self if self.spec == tuple(globs) else PinRules(tuple(globs))

    def with_globs(self, pin: bool, globs: Sequence[str]) -> PinRules:
        """With one more command."""
        if not pin and ALL in globs:
            return replace(self, later=((False, ALL),)) if self.spec else PinRules()
        added = tuple((pin, glob) for glob in globs)
        kept = tuple(rule for rule in self.later if (True, rule[1]) not in added and (False, rule[1]) not in added)
        return replace(self, later=kept + added)

    def wanted(self, manifest: Manifest, policy: str) -> Iterator[Wanted]:
        """The object versions to be pinned. Raises StokerError ManifestCorrupt."""
        rules = [(True, Globs.compile([glob])) for glob in self.spec]
        rules += [(pin, Globs.compile([glob])) for pin, glob in self.later]
        simple = all(pin for pin, _globs in rules)
        candidates = Globs.compile([*self.spec, *(glob for pin, glob in self.later if pin)])
        for inode in manifest.files_matching(candidates):
            if simple or _last(rules, manifest.path(inode)):
                file = file_of(manifest, inode, policy)
                if file.size and file.cacheable and not file.archived:
                    yield file.oid, file.size

    def to_json(self) -> dict[str, Any]:
        return {"spec": list(self.spec), "later": [list(rule) for rule in self.later]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PinRules:
        return cls(tuple(data["spec"]), tuple((bool(pin), str(glob)) for pin, glob in data["later"]))


def _last(rules: Sequence[tuple[bool, Globs]], path: bytes) -> bool:
    return next((pin for pin, globs in reversed(rules) if globs.matches(path)), False)
