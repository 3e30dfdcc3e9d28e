"""What is pinned on one disk, in numbers: the books behind the guarantee. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stoker.cache.amount import NOTHING, Amount, total


@dataclass(frozen=True, slots=True)
class Pinned:
    """Of one DataSet. `whole`: what its pins take when all of them are cached; `filled`: what they take now;
    `unmovable`: what it is charged for that somebody has pinned, so that it cannot be evicted."""

    whole: Amount = NOTHING
    filled: Amount = NOTHING
    unmovable: Amount = NOTHING

    @property
    def unfilled(self) -> Amount:
        """Room that is promised and not taken yet."""
        return (self.whole - self.filled).at_least_nothing()


@dataclass(slots=True)
class PinBook:
    """An object that several pin counts once for the disk, and for each of them."""

    whole: Amount = NOTHING
    filled: Amount = NOTHING
    by: dict[int, Pinned] = field(default_factory=dict)

    def of(self, account: int) -> Pinned:
        return self.by.get(account, _NOTHING)

    def put(self, account: int, pinned: Pinned) -> None:
        """The sums of a DataSet have changed."""
        if pinned == _NOTHING:
            self.by.pop(account, None)
        else:
            self.by[account] = pinned

    @property
    def unfilled(self) -> Amount:
        return (self.whole - self.filled).at_least_nothing()

    def kept_from(self, account: int) -> Amount:
        """Room that is promised to others: nothing of it is granted to this one."""
        return (self.unfilled - self.of(account).unfilled).at_least_nothing()

    def reserved(self, credit: Mapping[int, Amount]) -> Amount:
        """Room that is promised, and that nobody has credit for yet. `credit`: by account."""
        if self.unfilled == Amount():
            return Amount()
        lacking = ((p.unfilled - credit.get(whose, Amount())).at_least_nothing() for whose, p in self.by.items())
        return self.unfilled.smaller(total(lacking))


_NOTHING = Pinned()
