"""DataSets: the table of types and modes, defaults, and what is decided from other fields."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from stoker.api.cacheruntime import CacheRuntime
from stoker.api.combinations import DataSetType, Mode
from stoker.api.dataset import DataSet, DataSetSpec
from stoker.api.errors import StokerError
from stoker.api.quantity import Percent
from stoker.api.reasons import Reason
from stoker.api.resolve import resolve_sources, resolve_tuning, resolve_type

# As in the table of the API: type, direction, modes.
TABLE = {
    ("uri_folder", "input"): {"download", "ro_mount", "direct"},
    ("uri_file", "input"): {"download", "ro_mount", "direct"},
    ("mltable", "input"): {"download", "ro_mount", "direct", "eval_download", "eval_mount"},
    ("uri_folder", "output"): {"upload", "rw_mount"},
    ("uri_file", "output"): {"upload", "rw_mount"},
    ("mltable", "output"): {"upload", "rw_mount", "direct"},
}


def parse(**fields: Any) -> DataSetSpec:
    fields.setdefault("sources", [{"uri": "s3://b/x/"}])
    body = {"apiVersion": "stoker.dev/v1alpha1", "kind": "DataSet", "metadata": {"name": "a"}, "spec": fields}
    return DataSet.from_body(body).spec


@pytest.mark.parametrize(("kind", "mode"), list(product(get_args(DataSetType), get_args(Mode))))
def test_the_table_of_types_and_modes(kind: str, mode: str) -> None:
    """An `output` block makes an output of it; rw_mount and upload are outputs without one too."""
    for direction, block in (("input", {}), ("output", {"output": {}})):
        block = {**block, "sources": [{"uri": "s3://b/x"}]}
        if mode in TABLE[kind, direction] or (direction == "input" and mode in ("rw_mount", "upload")):
            assert parse(type=kind, mode=mode, **block).mode == mode
        else:
            with pytest.raises(StokerError) as refused:
                parse(type=kind, mode=mode, **block)
            assert refused.value.reason is Reason.UnsupportedCombination


def test_defaults_of_the_five_lines() -> None:
    spec = parse()
    assert (spec.mode, spec.type, spec.runtime_ref, spec.pin) == ("ro_mount", None, None, ())
    assert (spec.cache.policy, spec.cache.priority, spec.cache.replicas) == ("Cache", 100, 1)
    assert (spec.mount.file_mode, spec.mount.dir_mode, spec.mount.retries) == ("0444", "0555", 7)
    assert spec.identity.check_ttl.seconds == 60
    tuning = resolve_tuning(spec.mount)
    assert (tuning.read_ahead_max, tuning.block_size, tuning.memory_cache) == (64 << 20, 2 << 20, 128 << 20)


def test_a_profile_is_a_preset_and_what_is_written_wins() -> None:
    tuning = resolve_tuning(parse(mount={"profile": "random", "blockSize": "1Mi"}).mount)
    assert (tuning.read_ahead_max, tuning.block_size) == (0, 1 << 20)
    assert resolve_tuning(parse(mount={"readAhead": {"max": 0}}).mount).read_ahead_max == 0


def test_names_and_paths() -> None:
    assert [(s.name, s.path) for s in resolve_sources(parse())] == [("x", "/")]
    uris = ["s3://b/x/", "s3://c/x/", "s3://bucket", "https://h/a%20b.bin?sig=1", "s3://b/ä/", "file:///"]
    several = resolve_sources(parse(sources=[*({"uri": uri} for uri in uris), {"uri": "s3://d/", "name": "x-2"}]))
    assert [s.name for s in several] == ["x", "x-3", "bucket", "a-20b.bin", "source", "source-2", "x-2"]
    assert [s.path for s in several] == [f"/{s.name}" for s in several]
    (one,) = resolve_sources(parse(sources=[{"uri": "s3://b/", "path": "/data"}]))
    assert one.path == "/data"


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"sources": [{"uri": "s3://b/x/"}]}, "uri_folder"),
        ({"sources": [{"uri": "s3://b"}]}, "uri_folder"),
        ({"sources": [{"uri": "s3://b/x"}]}, None),
        ({"sources": [{"uri": "https://h/x"}]}, "uri_file"),
        ({"sources": [{"uri": "https://h/x"}, {"uri": "https://h/y"}]}, "uri_folder"),
        ({"type": "mltable", "sources": [{"uri": "s3://b/x"}]}, "mltable"),
    ],
)
def test_type(fields: dict[str, Any], kind: str | None) -> None:
    assert resolve_type(parse(**fields)) == kind


def test_models_are_frozen() -> None:
    spec = parse()
    with pytest.raises(ValidationError):
        spec.mode = "direct"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        spec.sources[0].uri = "s3://other/"  # type: ignore[misc]


def test_a_runtime() -> None:
    def runtime(**fields: Any) -> CacheRuntime:
        tiers = fields.pop("tiers", [{"path": "/mnt/a", "quota": "-50Gi"}])
        body = {"apiVersion": "stoker.dev/v1alpha1", "kind": "CacheRuntime", "metadata": {"name": "gpu"}}
        return CacheRuntime.from_body({**body, "spec": {"tiers": tiers, **fields}})

    spec = runtime().spec
    assert spec.tiers[0].quota == -(50 << 30)
    assert spec.update.max_unavailable == Percent(10)
    assert spec.reserve_free == 150 << 20
    assert spec.resources.requests == {"cpu": "1", "memory": "1Gi"}
    for wrong, place in [
        ({"tiers": []}, "spec.tiers"),
        ({"tiers": [{"path": "/a", "quota": 1}, {"path": "/a", "quota": 1}]}, "spec.tiers[1].path"),
        ({"tiers": [{"path": "a", "quota": 1}]}, "spec.tiers[0].path"),
        ({"tiers": [{"path": "/", "quota": 1}]}, "spec.tiers[0].path"),
        ({"tiers": [{"path": "/a", "quota": -1}]}, "spec.tiers[0].quota"),
        ({"eviction": {"lowWatermark": 0.9, "highWatermark": 0.8}}, "spec.eviction.lowWatermark"),
        ({"eviction": {"highWatermark": 1.5}}, "spec.eviction.highWatermark"),
        ({"reserveFree": "-1Gi"}, "spec.reserveFree"),
        ({"s3": {"port": 0}}, "spec.s3.port"),
        ({"resources": {"requests": {"cpu": 1}}}, "spec.resources.requests.cpu"),
        ({"limits": [{"pinnedBytes": "120%"}]}, "spec.limits[0].pinnedBytes"),
        ({"datastores": {"a": "nowhere"}}, "spec.datastores.a"),
    ]:
        with pytest.raises(StokerError) as refused:
            runtime(**wrong)
        assert refused.value.place == place
