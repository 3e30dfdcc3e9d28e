"""Local files as a store: what is listed of them, and files that change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.api.reasons import Reason
from stoker.sources.base import ObjectVersion, SourceError, SourceSpec


def spec(path, **more):
    return SourceSpec("source", f"file://{path}", **more)


async def test_links_are_followed_to_files_inside_the_root_only(tmp_path, opened, listed, read):
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "d" / "file").write_bytes(b"inside")
    (tmp_path / "secret").write_bytes(b"outside")
    (root / "good").symlink_to("d/file")
    (root / "bad").symlink_to("../secret")
    (root / "dangling").symlink_to("nowhere")
    (root / "folder").symlink_to("d")
    os.mkfifo(root / "pipe")
    source = opened(spec(f"{root}/"))
    found = {entry.key.removeprefix(source.prefix): entry for entry in await listed(source)}
    assert set(found) == {b"d/file", b"good"}
    assert await read(source, found[b"good"]) == b"inside"


@pytest.fixture
def odd_path(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff\xfe\n"
    Path(os.fsdecode(path)).write_bytes(b"x")
    return path


async def test_names_are_bytes(tmp_path, odd_path, opened, listed, read):
    source = opened(spec(f"{tmp_path}/"))
    (entry,) = await listed(source)
    assert entry.key == odd_path
    assert await read(source, entry) == b"x"


async def test_a_file_written_to_while_it_is_read_is_source_changed(tmp_path, opened, listed):
    path = tmp_path / "file"
    path.write_bytes(b"a" * (3 << 20))
    source = opened(spec(f"{tmp_path}/"))
    (entry,) = await listed(source)
    pieces = source.read(ObjectVersion(entry.key, entry.size, entry.etag, entry.mtime_ns), 0, entry.size)
    assert len(await anext(pieces)) > 0
    with path.open("r+b") as file:
        file.write(b"b" * (3 << 20))
    with pytest.raises(SourceError) as failed:
        await anext(pieces)
    assert failed.value.reason == Reason.SourceChanged


async def test_no_such_folder(tmp_path, opened, listed):
    with pytest.raises(SourceError) as failed:
        await listed(opened(spec(f"{tmp_path}/none/")))
    assert failed.value.reason == Reason.SourceNotFound
    assert f"{tmp_path}/none" in failed.value.place


async def test_an_empty_folder_is_an_empty_listing(tmp_path, opened, listed):
    assert await listed(opened(spec(f"{tmp_path}/"))) == []
