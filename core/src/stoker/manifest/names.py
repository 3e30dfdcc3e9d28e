"""Which keys a directory tree can show (docs/SEMANTICS.md, Names). Pure; nothing is ever normalised or escaped."""

from __future__ import annotations

import re

from stoker.api.reasons import Reason
from stoker.manifest.format import MAX_BELOW, MAX_NAME

# Components of 1 to 255 bytes that are neither `.` nor `..`, each with a slash behind it but perhaps the last.
# Possessive: a key that does not match is refused in one pass.
_SHOWABLE = re.compile(rb"(?:(?!\.{1,2}(?:/|\Z))[^/\0]{1,255}+(?:/|\Z))++\Z")


def hidden_reason(relative: bytes) -> Reason | None:
    """Why a key, relative to its source, cannot be a path of files and folders; None when it can.

    One slash at the end is a folder's marker. Of several reasons the first in the order below is given.
    """
    if len(relative) <= MAX_BELOW and _SHOWABLE.match(relative):
        return None
    if b"\0" in relative:
        return Reason.NulByte
    components = relative.removesuffix(b"/").split(b"/")
    if b"" in components:
        return Reason.EmptyComponent
    if b"." in components or b".." in components:
        return Reason.DotComponent
    return Reason.NameTooLong


def is_name(name: bytes) -> bool:
    """Whether `name` can be one entry of a directory."""
    return 0 < len(name) <= MAX_NAME and b"/" not in name and b"\0" not in name and name not in (b".", b"..")
