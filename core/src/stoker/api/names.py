"""Names of DataSets. Pure."""

from __future__ import annotations

LOCAL_NAMESPACE = "default"
"""Of documents that name none, outside a cluster."""


def full_name(name: str) -> str:
    """`namespace/name` of what a user calls `name` or `namespace/name`."""
    return name if "/" in name else f"{LOCAL_NAMESPACE}/{name}"
