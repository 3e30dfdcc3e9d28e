"""Times as answers write them. Pure."""

from __future__ import annotations

import functools
import time
from email.utils import formatdate

_SECOND_NS = 1_000_000_000


@functools.lru_cache(4096)  # objects that were uploaded together share their time
def http_date(mtime_ns: int) -> str:
    """`Last-Modified`. Rounded up to the second, as the conditions of `conditions.py` compare it."""
    return formatdate(-(-mtime_ns // _SECOND_NS), usegmt=True)


def iso_date(mtime_ns: int) -> str:
    """`LastModified` of a listing; the same second."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(-(-mtime_ns // _SECOND_NS)))
