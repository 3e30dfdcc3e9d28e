"""A source with identical copies: the next one answers when one cannot, and never with other bytes."""

from __future__ import annotations

import pytest

from servers.scenarios import refuses
from stoker.api.reasons import Reason
from stoker.sources.base import SourceError

DATA = bytes(range(256)) * 100


@pytest.fixture
def copies(scripted):
    for folder in ("one", "two"):
        scripted.put(f"{folder}/d/k", DATA)
    return scripted.spec("one/", replicas=("s3://bucket/two/",))


async def test_the_first_one_answers_while_it_can(scripted, copies, opened, listed, read):
    source = opened(copies)
    (entry,) = await listed(source)
    assert entry.key == b"one/d/k"
    assert await read(source, entry) == DATA
    assert scripted.store.count("two/d/k") == 0


async def test_the_next_one_answers_for_it(scripted, copies, opened, listed, read):
    scripted.store.on_list(refuses(403, "AccessDenied"), times=1)
    scripted.store.on("one/d/k", refuses(500))
    source = opened(copies)
    (entry,) = await listed(source)
    assert entry.key == b"one/d/k"
    assert await read(source, entry, 5, 900) == DATA[5:900]
    assert (await source.head(b"one/d/k")).key == b"one/d/k"


async def test_a_copy_with_other_bytes_is_source_changed(scripted, copies, opened, listed, read):
    scripted.put("two/d/k", DATA[::-1])
    source = opened(copies)
    (entry,) = await listed(source)
    scripted.store.on("one/d/k", refuses(500))
    with pytest.raises(SourceError) as failed:
        await read(source, entry)
    assert failed.value.reason == Reason.SourceChanged


async def test_what_copies_give_is_never_cached_as_the_source_alone(scripted, copies, opened):
    assert opened(copies).origin != opened(scripted.spec("one/")).origin
