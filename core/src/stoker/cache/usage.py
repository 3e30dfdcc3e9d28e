"""What a tier holds, for reports."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.api.reasons import Reason
from stoker.cache.amount import Amount
from stoker.cache.tier import Tier


@dataclass(frozen=True, slots=True)
class TierUsage:
    """For status. `limit_bytes` is what the tier could hold as things are (the limit, or less on a fuller disk);
    `used` counts everything, `granted` is the part that fetchers were promised and that is not in the index yet;
    `pinned` what all pins take when they are cached."""

    path: str
    limit_bytes: int
    used_bytes: int
    limit_inodes: int
    used_inodes: int
    granted: Amount
    pinned: Amount
    state: str
    reason: Reason | None = None


def usage_of(tier: Tier) -> TierUsage:
    """As of now, everything counted."""
    ledger = tier.ledger
    held, capacity = ledger.held(), ledger.capacity(tier.free())
    limits, used = (capacity.bytes, held.bytes), (capacity.inodes, held.inodes)
    return TierUsage(tier.root, *limits, *used, ledger.granted(), ledger.pins.whole, tier.state, tier.health.reason)
