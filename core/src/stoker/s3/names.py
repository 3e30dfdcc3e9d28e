"""Which bucket a DataSet is. Pure.

A DataSet of the local namespace is a bucket of its own name, one of another namespace is `namespace.name`; so is one
whose name has a dot in it. A namespace has no dot, so no two DataSets have one bucket.
"""

from __future__ import annotations

import hashlib

from stoker.api.names import LOCAL_NAMESPACE

_MOST = 63  # characters of a bucket's name
_KEPT = 46


def bucket_of(data_set: str) -> str:
    """The bucket of `namespace/name`. A name that no bucket can have is cut and marked with its hash."""
    namespace, _, name = data_set.partition("/")
    plain = name if namespace == LOCAL_NAMESPACE and "." not in name else f"{namespace}.{name}"
    if len(plain) <= _MOST:
        return plain
    mark = hashlib.blake2b(data_set.encode(), digest_size=8).hexdigest()
    return f"{plain[:_KEPT].rstrip('.-')}-{mark}"
