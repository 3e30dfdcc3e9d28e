from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cache.record import ChunkRecord, ObjectRecord, OwnerRecord, Totals, chunk_key, split_chunk_key

bits = st.integers(0, 255)
u64 = st.integers(0, (1 << 64) - 1)
OID = bytes(range(20))


@given(u64, st.binary(min_size=16, max_size=16), st.integers(1, 256), st.randoms(use_true_random=False))
def test_chunk_records_come_back(incarnation: int, boot: bytes, pages: int, random) -> None:  # type: ignore[no-untyped-def]
    present, allocated, verified = (random.getrandbits(pages) for _ in range(3))
    crcs = [random.getrandbits(32) for _ in range(pages)]
    record = ChunkRecord(incarnation, boot, pages, present, allocated, verified, crcs)
    key = chunk_key(OID, 3)
    assert ChunkRecord.unpack(key, record.pack(key)) == record
    assert split_chunk_key(key) == (OID, 3)


@given(u64, u64, u64, u64, st.integers(0, (1 << 32) - 1), st.lists(u64, max_size=5))
def test_object_records_come_back(inc: int, size: int, held: int, present: int, epoch: int, owners: list[int]) -> None:
    record = ObjectRecord(inc, size, held, present, epoch, tuple(owners))
    assert ObjectRecord.unpack(OID, record.pack(OID)) == record


def test_small_records_are_small() -> None:
    key = chunk_key(OID, 0)
    assert len(ChunkRecord(1, bytes(16), 4, 15, 15, 15, [0] * 4).pack(key)) == 51
    assert len(ObjectRecord(1, 1, 1, 1, 1, (1,)).pack(OID)) == 52


RECORDS = [
    (chunk_key(OID, 1), ChunkRecord(5, bytes(16), 9, 511, 511, 3, list(range(9))).pack(chunk_key(OID, 1)), ChunkRecord),
    (OID, ObjectRecord(5, 6, 7, 8, 9, (10,)).pack(OID), ObjectRecord),
    (b"k", OwnerRecord(1, 2, 1, 1, name="team/a").pack(b"k"), OwnerRecord),
]


@pytest.mark.parametrize(("key", "raw", "kind"), RECORDS)
def test_a_harmed_record_is_no_record(key: bytes, raw: bytes, kind) -> None:  # type: ignore[no-untyped-def]
    assert kind.unpack(key, raw) is not None
    assert kind.unpack(key, None) is None
    for at in range(len(raw)):
        assert kind.unpack(key, raw[:at]) is None
        if at != 1 or kind is ObjectRecord:
            assert kind.unpack(key, raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :]) is None


@pytest.mark.parametrize(("key", "raw", "kind"), RECORDS)
def test_a_record_under_another_key_is_no_record(key: bytes, raw: bytes, kind) -> None:  # type: ignore[no-untyped-def]
    assert kind.unpack(key[:-1] + bytes([key[-1] ^ 1]), raw) is None


def test_totals() -> None:
    totals = Totals(1, 2, 3, True)
    assert Totals.unpack(totals.pack()) == totals
    assert Totals.unpack(totals.pack()[:-1]) is None
