"""Secrets that this process knows, taken out of every text that leaves it: errors, log lines, answers.

A store may put what it was sent into its own words, and a library into its exceptions; nobody can foresee where. So
what is known to be secret is looked for at the way out. Not for keeping secrets out of places where they have no use.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, quote

HIDDEN = "***"

_LEAST = 8  # what is shorter is a word that stands in honest texts as well
_MOST = 4096  # keys that were renewed long ago are forgotten

_known: dict[str, None] = {}


def hide(*secrets: str) -> None:
    """From now on these are shown nowhere."""
    for secret in secrets:
        for form in {secret, quote(secret, safe=""), quote(secret)}:
            if len(form) >= _LEAST:
                _known.pop(form, None)
                _known[form] = None
    while len(_known) > _MOST:
        del _known[next(iter(_known))]


def hide_query(uri: str) -> None:
    """The query of a presigned url is its secret, whole and in parts."""
    query = uri.partition("?")[2]
    if query:
        hide(query, *(value for _, value in parse_qsl(query)))


def redacted(text: str) -> str:
    """The text without what is secret. The longest first: one may be part of another."""
    found = [secret for secret in _known if secret in text]
    for secret in sorted(found, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
