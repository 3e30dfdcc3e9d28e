"""The root of every error that Stoker raises on purpose: a reason word, a place and the next step."""

from __future__ import annotations

from stoker.api.reasons import Reason
from stoker.api.redact import redacted


class StokerError(Exception):
    """A refusal or failure that a user can act on.

    `place` is where: `file:line`, a field path, a uri, a path. `next_step` is what to do about it, as one sentence.
    """

    def __init__(self, reason: Reason, message: str, *, place: str = "", next_step: str = "") -> None:
        super().__init__(redacted(message))
        self.reason = reason
        self.message = redacted(message)
        self.place = redacted(place)
        self.next_step = redacted(next_step)

    def __str__(self) -> str:
        return self.line()

    def line(self) -> str:
        """The one line that users read: `Reason: place: message. Next: step`."""
        place = f"{self.place}: " if self.place else ""
        step = f" Next: {self.next_step}" if self.next_step else ""
        return f"{self.reason}: {place}{self.message}{'' if self.message.endswith('.') else '.'}{step}"

    def to_json(self) -> dict[str, str]:
        """The same as plain data, for the admin API (`problem+json` members) and between processes."""
        return {"reason": str(self.reason), "message": self.message, "place": self.place, "nextStep": self.next_step}

    @classmethod
    def from_json(cls, data: dict[str, str]) -> StokerError:
        """Read what `to_json` wrote; an unknown reason word becomes `Internal`, with the word kept in the message."""
        try:
            reason, message = Reason(data.get("reason", "")), data.get("message", "")
        except ValueError:
            reason, message = Reason.Internal, f"{data.get('reason', '')}: {data.get('message', '')}"
        return StokerError(reason, message, place=data.get("place", ""), next_step=data.get("nextStep", ""))
