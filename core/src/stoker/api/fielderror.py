"""What is wrong with one field of a document: raised by the types of the API, turned into a StokerError by `load`."""

from __future__ import annotations

from stoker.api.reasons import Reason

Location = tuple[str | int, ...]


class FieldError(ValueError):
    """A value that is not accepted. `accepted` is a sentence that says what is; `at` is below the field that raised."""

    def __init__(
        self, message: str, *, accepted: str = "", reason: Reason = Reason.InvalidValue, at: Location = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.accepted = accepted
        self.reason = reason
        self.at = at


def field_path(location: Location) -> str:
    """`("spec", "sources", 0, "uri")` -> `spec.sources[0].uri`."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path
