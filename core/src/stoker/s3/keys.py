"""Access keys of readers: what a key says, and the secret that belongs to it. Nothing is stored but revocations.

A key's id says who reads, which DataSet, and until when; its secret is an HMAC of the id under a secret of the node. So
a key is good after any restart, and no two readers share one. Not for deciding who may have a key: the admin API does.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import hmac
import json
import os
import secrets
import struct
import time
from dataclasses import dataclass

_PREFIX = "SK"
_VERSION = 1
_BYPASS = 1
# version, flags, expiry in seconds since 1970 (0: none), serial, hash of the DataSet's name; the reader's name follows.
_ID = struct.Struct(">BBI8s16s")
MOST_READER = 40
"""Bytes of a reader's name in an id; a longer one is cut and marked with its hash. An id has at most 115 characters."""

_MOST_ID = 128
_CONTEXT = b"stoker s3 key 1\0"
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class AccessKey:
    """What an id says. `expires`: seconds since 1970, 0 for never. `bypass`: its reads go to the source."""

    id: str
    serial: str
    reader: str
    data_set_hash: bytes
    expires: int = 0
    bypass: bool = False

    def opens(self, data_set: str) -> bool:
        return hmac.compare_digest(self.data_set_hash, _hash(data_set, 16))

    def expired(self, now: float) -> bool:
        return bool(self.expires) and now >= self.expires


def new_key(reader: str, data_set: str, *, expires: int = 0, bypass: bool = False) -> AccessKey:
    """A key that was never given out before."""
    name = reader.encode(errors="replace")
    if len(name) > MOST_READER:
        name = name[: MOST_READER - 17] + b"~" + _hash(reader, 8).hex().encode()
    flags = _BYPASS if bypass else 0
    packed = _ID.pack(_VERSION, flags, expires, secrets.token_bytes(8), _hash(data_set, 16)) + name
    key = parse_key(_PREFIX + base64.b32encode(packed).decode().rstrip("="))
    assert key is not None
    return key


def parse_key(text: str) -> AccessKey | None:
    """What an id says; None when it is not one of ours."""
    return _parsed(text) if text.startswith(_PREFIX) and len(text) <= _MOST_ID else None


@functools.lru_cache(1024)  # a reader sends the same id with each request
def _parsed(text: str) -> AccessKey | None:
    coded = text[len(_PREFIX) :]
    try:
        packed = base64.b32decode(coded + "=" * (-len(coded) % 8))
        version, flags, expires, serial, data_set = _ID.unpack_from(packed)
    except (ValueError, struct.error):
        return None
    if version != _VERSION or base64.b32encode(packed).decode().rstrip("=") != coded:
        return None
    reader = packed[_ID.size :].decode(errors="replace")
    return AccessKey(text, serial.hex(), reader, data_set, expires, bool(flags & _BYPASS))


def _hash(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=size).digest()


@functools.lru_cache(1024)
def _derived(secret: bytes, key_id: str) -> str:
    digest = hmac.digest(secret, _CONTEXT + key_id.encode(), "sha256")
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


class KeyRing:
    """The node's secret and its revocations, in one private folder. Any number of processes may have it open."""

    def __init__(self, state_dir: str) -> None:
        self._folder = os.path.join(state_dir, "s3")
        self._list = os.path.join(self._folder, "revoked.json")
        self._secret = b""
        self._seen: tuple[int, int] | None = None
        self._revoked: dict[str, int] = {}

    def make(self) -> None:
        """The secret, when there is none yet: by the daemon, before anybody asks for it."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        path = self._secret_path
        with contextlib.suppress(FileExistsError):
            temporary = f"{path}.new"
            _write(temporary, secrets.token_bytes(_SECRET_BYTES))
            try:
                os.link(temporary, path)  # never in the place of one that is there
            finally:
                os.unlink(temporary)
        _sync(self._folder)

    def secret_of(self, key_id: str) -> str:
        """The secret access key of an id."""
        if not self._secret:
            with open(self._secret_path, "rb") as file:
                self._secret = file.read()
        return _derived(self._secret, key_id)

    def revoked(self, key: AccessKey) -> bool:
        """Whether a key was revoked, as of now: the list is looked at again when it changed."""
        self._read()
        return key.serial in self._revoked

    def revoke(self, key: AccessKey) -> None:
        """For good; on disk when this returns. By the daemon only. Those that have expired anyway are forgotten."""
        self._read()
        now = time.time()
        kept = {serial: expires for serial, expires in self._revoked.items() if not expires or expires > now}
        kept[key.serial] = key.expires
        temporary = f"{self._list}.new"
        _write(temporary, json.dumps(kept).encode())
        os.replace(temporary, self._list)
        _sync(self._folder)

    def _read(self) -> None:
        try:
            status = os.stat(self._list)
        except FileNotFoundError:
            return
        seen = status.st_ino, status.st_mtime_ns
        if seen != self._seen:
            with open(self._list, "rb") as file:
                self._revoked = json.load(file)
            self._seen = seen

    @property
    def _secret_path(self) -> str:
        return os.path.join(self._folder, "secret")


def _write(path: str, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
