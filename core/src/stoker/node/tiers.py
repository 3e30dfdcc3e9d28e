"""Which disks the cache of this node uses, how much of them, and its S3 port: from the settings or a CacheRuntime."""

from __future__ import annotations

from typing import Any

from stoker.api.cacheruntime import CacheRuntime
from stoker.api.errors import StokerError
from stoker.api.load import read_documents
from stoker.api.quantity import Quantity
from stoker.api.reasons import Reason
from stoker.cache.ledger import Limits
from stoker.cache.tier import TierConfig


def tier_configs(config: dict[str, Any]) -> list[TierConfig]:
    """Raises StokerError for a CacheRuntime that cannot be read."""
    if config["runtime_file"]:
        return _from_runtime(config["runtime_file"])
    limits = Limits(
        bytes=int(Quantity.parse(config["cache_quota"])),
        inodes=int(config["cache_inodes"]),
        reserve_free=int(Quantity.parse(config["reserve_free"])),
        high=float(config["high_watermark"]),
        low=float(config["low_watermark"]),
    )
    return [TierConfig(config["cache_dir"], limits)]


def s3_port(config: dict[str, Any]) -> int:
    """Where S3 is served, 0 for nowhere: a CacheRuntime that says something of it decides, else the settings.

    Raises StokerError for a CacheRuntime that cannot be read.
    """
    if config["runtime_file"]:
        spec = _runtime(config["runtime_file"]).spec
        if "s3" in spec.model_fields_set:
            return spec.s3.port if spec.s3.enabled else 0
    return int(config["s3_port"])


def _runtime(path: str) -> CacheRuntime:
    runtime = read_documents(path)[0].model
    if not isinstance(runtime, CacheRuntime):
        step = "give a CacheRuntime."
        raise StokerError(Reason.UnknownKind, f"it is a {runtime.kind}", place=path, next_step=step)
    return runtime


def _from_runtime(path: str) -> list[TierConfig]:
    spec = _runtime(path).spec
    return [
        TierConfig(
            tier.path,
            Limits(
                bytes=int(tier.quota),
                inodes=tier.inodes,
                reserve_free=int(spec.reserve_free),
                high=spec.eviction.high_watermark,
                low=spec.eviction.low_watermark,
            ),
        )
        for tier in spec.tiers
    ]
