"""Access keys: what an id says, that its secret lasts, and that a revoked one stays revoked."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from stoker.s3.keys import MOST_READER, KeyRing, new_key, parse_key
from stoker.s3.names import bucket_of


def ring(folder: Path) -> KeyRing:
    opened = KeyRing(str(folder))
    opened.make()
    return opened


def test_an_id_says_who_reads_what_and_until_when() -> None:
    key = new_key("anna", "default/imagenet", expires=2_000_000_000, bypass=True)
    assert parse_key(key.id) == key
    assert (key.reader, key.expires, key.bypass) == ("anna", 2_000_000_000, True)
    assert key.opens("default/imagenet")
    assert not key.opens("default/imagenet2")
    assert not key.expired(1_999_999_999)
    assert key.expired(2_000_000_000)
    assert not new_key("anna", "default/imagenet").expired(9e9)


def test_two_keys_of_one_reader_differ() -> None:
    assert new_key("anna", "default/a").id != new_key("anna", "default/a").id


def test_an_id_is_what_every_client_takes() -> None:
    for reader in ("", "x", "system:serviceaccount:" + "n" * 63 + ":" + "s" * 63, "j\u00fcrgen"):
        key = new_key(reader, "default/a")
        assert key.id.isalnum()
        assert 16 <= len(key.id) <= 128
        assert len(key.reader.encode()) <= MOST_READER


def test_long_names_of_readers_stay_different() -> None:
    one, other = ("s" * 100 + end for end in "ab")
    assert new_key(one, "default/a").reader != new_key(other, "default/a").reader


@pytest.mark.parametrize("text", ["", "SK", "AKIAIOSFODNN7EXAMPLE", "SK" + "A" * 60, "sk", "SK!!", "SK" + "1" * 56])
def test_what_is_no_id_of_ours_is_none(text: str) -> None:
    assert parse_key(text) is None


def test_each_character_of_an_id_counts() -> None:
    key = new_key("anna", "default/a")
    for at in range(2, len(key.id)):
        other = parse_key(key.id[:at] + ("B" if key.id[at] == "A" else "A") + key.id[at + 1 :])
        assert other is None or other.id != key.id


def test_a_secret_is_the_same_after_a_restart_and_differs_by_id_and_node(tmp_path: Path) -> None:
    one, two = new_key("anna", "default/a").id, new_key("anna", "default/a").id
    secret = ring(tmp_path / "n").secret_of(one)
    assert len(secret) >= 40
    assert ring(tmp_path / "n").secret_of(one) == secret
    assert ring(tmp_path / "n").secret_of(two) != secret
    assert ring(tmp_path / "other").secret_of(one) != secret


def test_the_node_s_secret_is_private(tmp_path: Path) -> None:
    ring(tmp_path)
    assert stat.S_IMODE((tmp_path / "s3").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "s3" / "secret").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "s3").iterdir()] == ["secret"]


def test_another_process_sees_a_revocation_at_once_and_for_good(tmp_path: Path) -> None:
    daemon, server = ring(tmp_path), ring(tmp_path)
    first, second = new_key("anna", "default/a"), new_key("anna", "default/a")
    assert not server.revoked(first)
    daemon.revoke(first)
    assert server.revoked(first)
    daemon.revoke(second)
    assert (server.revoked(first), server.revoked(second)) == (True, True)
    assert ring(tmp_path).revoked(first)


def test_revocations_of_keys_that_expired_are_forgotten(tmp_path: Path) -> None:
    daemon = ring(tmp_path)
    old = new_key("anna", "default/a", expires=1)
    daemon.revoke(old)
    daemon.revoke(new_key("anna", "default/a"))
    assert not ring(tmp_path).revoked(old)


@pytest.mark.parametrize(
    ("data_set", "bucket"),
    [
        ("default/imagenet", "imagenet"),
        ("vision/imagenet", "vision.imagenet"),
        ("default/v1.2", "default.v1.2"),
        ("default/vision.imagenet", "default.vision.imagenet"),
    ],
)
def test_names_of_buckets(data_set: str, bucket: str) -> None:
    assert bucket_of(data_set) == bucket


def test_long_names_are_cut_and_stay_different() -> None:
    names = {bucket_of(f"{'n' * 63}/{'a' * 100}{end}") for end in ("", "b", "c")}
    assert len(names) == 3
    assert all(len(name) <= 63 for name in names)
