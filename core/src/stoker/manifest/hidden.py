"""The keys that a generation cannot show: counted by reason, the first few of each kept for `stoker manifest show`."""

from __future__ import annotations

from bisect import insort

from stoker.api.reasons import Reason
from stoker.manifest.format import HiddenKey

SAMPLES = 100  # of each reason: enough to see the pattern, bounded whatever a bucket holds


class HiddenKeys:
    """Counts and samples. The samples are the smallest keys, so the order of the listing does not show in them."""

    def __init__(self) -> None:
        self._counts: dict[Reason, int] = {}
        self._samples: dict[Reason, list[tuple[int, bytes]]] = {}

    def add(self, reason: Reason, source: int, key: bytes) -> None:
        self._counts[reason] = self._counts.get(reason, 0) + 1
        self._sample(reason, source, key)

    def merge(self, other: HiddenKeys) -> None:
        for reason, count in other._counts.items():
            self._counts[reason] = self._counts.get(reason, 0) + count
        for reason, keys in other._samples.items():
            for source, key in keys:
                self._sample(reason, source, key)

    def _sample(self, reason: Reason, source: int, key: bytes) -> None:
        smallest = self._samples.setdefault(reason, [])
        if len(smallest) < SAMPLES or (source, key) < smallest[-1]:
            insort(smallest, (source, key))
            del smallest[SAMPLES:]

    def counts(self) -> dict[str, int]:
        return {str(reason): count for reason, count in sorted(self._counts.items())}

    def samples(self) -> dict[str, tuple[HiddenKey, ...]]:
        return {str(reason): tuple(HiddenKey(*key) for key in keys) for reason, keys in sorted(self._samples.items())}
