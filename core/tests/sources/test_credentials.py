"""Whose rights a source is read with: the environment's keys, a profile, nobody's."""

from __future__ import annotations

import pytest

from stoker.api.reasons import Reason
from stoker.sources.base import Credentials, SourceError
from stoker.sources.credentials import KeyRing, environment_credentials

KEYS = {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK"}


@pytest.fixture
def home(tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id=DEFAULT\naws_secret_access_key=s1\n"
        "[work]\naws_access_key_id=WORK\naws_secret_access_key=s2\naws_session_token=t\n"
    )
    return tmp_path


def test_keys_of_the_environment_come_first(home):
    given = environment_credentials({**KEYS, "AWS_SESSION_TOKEN": "T", "HOME": str(home)})
    assert given == Credentials("static", "AK", "SK", "T")


def test_an_empty_variable_counts_as_unset(tmp_path):
    given = environment_credentials({**KEYS, "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "HOME": str(tmp_path)})
    assert given == Credentials("static", "AK", "SK")
    assert environment_credentials({**KEYS, "AWS_SECRET_ACCESS_KEY": "", "HOME": str(tmp_path)}) == Credentials()


async def test_a_profile_is_resolved_from_the_files_of_the_user(home):
    for env, key, token in (({}, "DEFAULT", ""), ({"AWS_PROFILE": "work"}, "WORK", "t")):
        given = environment_credentials({**env, "HOME": str(home)})
        assert given.kind == "profile"
        keys = await KeyRing(Credentials.from_json(given.to_json())).keys()
        assert keys is not None
        assert (keys.access_key, keys.token) == (key, token)


async def test_the_environment_of_the_node_is_never_asked(tmp_path, monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    ring = KeyRing(Credentials("profile", config_file=str(tmp_path / "no"), credentials_file=str(tmp_path / "no")))
    with pytest.raises(SourceError) as failed:
        await ring.keys()
    assert failed.value.reason == Reason.CredentialsMissing


async def test_a_profile_that_is_not_there_is_named(home):
    with pytest.raises(SourceError) as failed:
        await KeyRing(environment_credentials({"AWS_PROFILE": "other", "HOME": str(home)})).keys()
    assert failed.value.reason == Reason.CredentialsMissing
    assert "other" in failed.value.message


def test_no_secret_is_shown():
    given = environment_credentials({**KEYS, "AWS_SESSION_TOKEN": "T0K3N"})
    assert "SK" not in repr(given)
    assert "T0K3N" not in repr(given)


@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION"])
async def test_reads_by_obstore_ignore_the_environment(scripted, opened, listed, read, monkeypatch, variable):
    monkeypatch.setenv(variable, "http://127.0.0.1:1/ambient")
    scripted.put("k", b"data")
    source = opened(scripted.spec())
    (entry,) = await listed(source)
    assert await read(source, entry) == b"data"
    headers = scripted.store.of("k")[0].headers
    assert "ambient" not in str(headers)
    assert "admin/" in headers["authorization"]
