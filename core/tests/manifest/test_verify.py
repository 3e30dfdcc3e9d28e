"""A manifest that is well formed but tells of other things than its data set is refused whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stoker.api.errors import StokerError
from stoker.manifest.verify import verify
from stoker.sources.base import SourceSpec

SPEC = SourceSpec("data", "s3://bucket/data/", endpoint="http://store")


@pytest.fixture
def path(make: Any) -> str:
    keys = (b"data/a.tar", b"data/d/b.tar", b"data/d/e/c.txt")
    return str(make.summary((make.source(), [make.entry(key) for key in keys])).path)


def test_its_own_data_set_passes(path: str) -> None:
    verify(path, [SPEC])
    verify(path, [replace(SPEC, include=("**/*.tar", "d/**"), exclude=("x/**",))])


@pytest.mark.parametrize(
    "spec",
    [
        replace(SPEC, uri="s3://bucket/other/"),
        replace(SPEC, uri="s3://other/data/"),
        replace(SPEC, endpoint="http://elsewhere"),
        replace(SPEC, name="other"),
        replace(SPEC, path="/elsewhere"),
        replace(SPEC, include=("**/*.tar",)),
        replace(SPEC, exclude=("d/e/**",)),
    ],
)
def test_another_data_set_is_refused(path: str, spec: SourceSpec) -> None:
    with pytest.raises(StokerError, match="ManifestOutsideSource"):
        verify(path, [spec])


def test_another_number_of_sources_is_refused(path: str) -> None:
    for specs in ([], [SPEC, SPEC]):
        with pytest.raises(StokerError, match="ManifestOutsideSource"):
            verify(path, specs)


def test_a_prefix_outside_of_the_uri_is_refused(make: Any) -> None:
    wide = replace(make.source(), prefix=b"")
    path = make.summary((wide, [make.entry(b"data/ok"), make.entry(b"secret")])).path
    with pytest.raises(StokerError, match="secret"):
        verify(path, [SPEC])


def test_a_replica_of_the_data_set_passes_and_no_other(make: Any) -> None:
    listed = replace(make.source(), prefix=b"copy/", contacted="s3://backup/copy/", origin="s3://store/backup")
    path = make.summary((listed, [make.entry(b"copy/a")])).path
    verify(path, [replace(SPEC, replicas=("s3://backup/copy/",))])
    with pytest.raises(StokerError, match="ManifestOutsideSource"):
        verify(path, [SPEC])


def test_one_object_as_the_whole_source_passes(make: Any) -> None:
    uri = "s3://bucket/w/x"
    listed = replace(make.source(prefix=b"w/x/"), uri=uri, contacted=uri)
    path = make.summary((listed, [make.entry(b"w/x")])).path
    verify(path, [replace(SPEC, uri=uri)])
    with pytest.raises(StokerError, match="ManifestOutsideSource"):
        verify(path, [replace(SPEC, uri=uri, include=("*.tar",))])


def test_several_sources_and_nested_paths_pass(make: Any) -> None:
    specs = [SPEC, replace(SPEC, name="train", uri="s3://bucket/t/", path="/d/train")]
    listings = [
        (make.source(), [make.entry(b"data/d/train/x"), make.entry(b"data/z"), make.entry(b"data/q/")]),
        (make.source("train", "/d/train", b"t/"), [make.entry(b"t/%d/f" % number) for number in range(2000)]),
    ]
    verify(make.summary(*listings).path, specs)
