"""Globs on `/`-separated byte paths: compiled once into one regular expression; for include, exclude, paths, pin.

`*` any run of bytes inside a component, `?` one character, `[a-z]` `[!a-z]` one of a set, `**` (alone between slashes)
any number of components, `\\` takes the next character as it is. `dir/` means everything below dir. A leading slash is
ignored. Case counts; nothing is normalised. Not for the file system: nothing is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from stoker.api.fielderror import FieldError

MAX_LENGTH = 1024
_ACCEPTED = "Write a glob such as **/*.tar, train/** or shard-[0-9]?.bin."
# One character of UTF-8, or one byte of what is not UTF-8. Atomic, so that `??` never takes half characters.
_CHARACTER = rb"(?>[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}|[^/])"
_END_OF_COMPONENT = rb"(?=/|\Z)"


@dataclass(frozen=True, slots=True)
class Globs:
    """A set of globs; a path matches when one of them does. No globs match nothing."""

    patterns: tuple[str, ...]
    regex: re.Pattern[bytes]

    @classmethod
    def compile(cls, patterns: Sequence[str]) -> Globs:
        """Raises FieldError for a pattern that is not a glob."""
        alternatives = b"|".join(_translate(pattern) for pattern in patterns) or rb"(?!)"
        return cls(tuple(patterns), re.compile(b"(?:" + alternatives + rb")\Z", re.DOTALL))

    def matches(self, path: bytes) -> bool:
        """Whether `path`, without a leading slash, matches."""
        return self.regex.match(path) is not None


@dataclass(frozen=True, slots=True)
class Selection:
    """What a source keeps: all that matches `include` (everything when there is none) and not `exclude`."""

    include: Globs | None
    exclude: Globs | None

    @classmethod
    def compile(cls, include: Sequence[str], exclude: Sequence[str]) -> Selection:
        return cls(Globs.compile(include) if include else None, Globs.compile(exclude) if exclude else None)

    def keeps(self, path: bytes) -> bool:
        return (self.include is None or self.include.matches(path)) and not (
            self.exclude is not None and self.exclude.matches(path)
        )


def check_glob(pattern: str) -> str:
    """`pattern` itself. Raises FieldError when it is not a glob."""
    _translate(pattern)
    return pattern


def _translate(pattern: str) -> bytes:
    """The pattern as a regular expression without its end.

    Wildcards that have another one behind them take the first match for good (atomic groups): the later one can take
    whatever the earlier could have, and a hostile pattern cannot make matching exponential.
    """
    if len(pattern) > MAX_LENGTH or "\0" in pattern:
        raise FieldError(f"the glob {pattern[:40]!r} is too long or holds NUL", accepted=_ACCEPTED)
    components = pattern.removeprefix("/").split("/")
    if components[-1] == "" and len(components) > 1:
        components[-1] = "**"
    if "" in components or "." in components or ".." in components:
        raise FieldError(f"the glob {pattern!r} has an empty, `.` or `..` component", accepted=_ACCEPTED)
    runs = _split_at_double_stars([_component(pattern, component) for component in components])
    first, *later = [b"/".join(run) for run in runs]
    if not later:
        return first
    *middle, last = later
    body = (first + b"/" if first else b"") + reduce(lambda done, run: done + _somewhere(run), middle, b"")
    return body + (rb"(?:[^/]+/)*" + last if last else rb"[^/]+(?:/[^/]+)*")


def _somewhere(run: bytes) -> bytes:
    """`run` at the first place below here where it fits, and the slash behind it."""
    return rb"(?>(?:[^/]+/)*?" + run + b"/)" if run else b""


def _split_at_double_stars(components: list[bytes | None]) -> list[list[bytes]]:
    runs: list[list[bytes]] = [[]]
    for component in components:
        if component is None:
            runs.append([])
        else:
            runs[-1].append(component)
    return runs


def _component(pattern: str, component: str) -> bytes | None:
    """One component as a regular expression; None for `**`."""
    if component == "**":
        return None
    if "**" in component:
        raise FieldError(f"`**` is not alone between slashes in {pattern!r}", accepted="Write **/*.tar, not **.tar.")
    pieces = [b""]  # what stands between the stars
    for token in _tokens(pattern, component):
        if token == b"*":
            pieces.append(b"")
        else:
            pieces[-1] += token
    first, *later = pieces
    if not later:
        return first
    *middle, last = later
    atomic = b"".join(rb"(?>[^/]*?" + piece + b")" for piece in middle if piece)
    # A file name is never empty, so a component of stars only takes one byte at least.
    some = b"+" if not any(pieces) else b"*"
    return first + atomic + b"[^/]" + some + last + _END_OF_COMPONENT


def _tokens(pattern: str, component: str) -> Iterator[bytes]:
    at = 0
    while at < len(component):
        character = component[at]
        at += 1
        if character == "*":
            yield b"*"
        elif character == "?":
            yield _CHARACTER
        elif character == "[":
            end = component.find("]", at + 1 + (component[at : at + 1] == "!"))
            if end < 0:
                raise FieldError(f"`[` without `]` in {pattern!r}", accepted=_ACCEPTED)
            yield _set(pattern, component[at:end])
            at = end + 1
        elif character == "\\":
            if at == len(component):
                raise FieldError(f"{pattern!r} ends in a lone backslash", accepted=_ACCEPTED)
            yield _literal(component[at])
            at += 1
        else:
            yield _literal(character)


def _literal(text: str) -> bytes:
    return re.escape(text.encode("utf-8", "surrogateescape"))


def _set(pattern: str, body: str) -> bytes:
    negated = body.startswith("!")
    members = list(_members(pattern, body[negated:]))
    either = b"(?>" + b"|".join(members) + b")"
    return b"(?!" + either + b")" + _CHARACTER if negated else either


def _members(pattern: str, body: str) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        if body[at + 1 : at + 2] == "-" and at + 2 < len(body):
            low, high = body[at], body[at + 2]
            if not (low <= high < "\x80") or low <= "/" <= high:
                raise FieldError(
                    f"the range {low}-{high} in {pattern!r} is not one", accepted="Ranges are of ASCII, low to high."
                )
            yield b"[" + _literal(low) + b"-" + _literal(high) + b"]"
            at += 3
        else:
            yield _literal(body[at])
            at += 1
