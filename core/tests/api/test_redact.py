"""What is known to be secret is in no text that leaves."""

from __future__ import annotations

import pytest

from stoker.api import redact
from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.sources.base import Credentials, SourceSpec
from stoker.sources.credentials import Keys


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "_known", {})


@pytest.mark.parametrize(
    "text", ["a top/secret+key here", "top%2Fsecret%2Bkey", "top/secret%2Bkey", "top/secret+keytop/secret+key"]
)
def test_in_any_form(text: str) -> None:
    redact.hide("top/secret+key")
    assert "secret" not in redact.redacted(text)


def test_the_longer_of_two_is_hidden_whole() -> None:
    redact.hide("12345678", "12345678-and-more")
    assert redact.redacted("is 12345678-and-more") == "is ***"


def test_words_are_not_secrets() -> None:
    redact.hide("", "train", "s3")
    assert redact.redacted("s3://train") == "s3://train"


def test_errors_show_none() -> None:
    Credentials("static", "AKIAEXAMPLE", "the secret key", "the session token")
    Keys("AKIARENEWED", "the renewed key", "the renewed token")
    SourceSpec("s", "https://h/f?sig=signature1", replicas=("https://r/f?sig=signature2",))
    text = "AKIAEXAMPLE the secret key the session token AKIARENEWED the renewed key the renewed token"
    text += " signature1 signature2"
    error = StokerError(Reason.AccessDenied, text, place=text, next_step=text)
    assert error.line().replace("***", "").split() == ["AccessDenied:", ":", ".", "Next:"]
    assert error.args == (error.message,)


def test_old_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "_MOST", 10)
    redact.hide(*(f"secret number {n}" for n in range(100)))
    assert len(redact._known) == 10
    assert redact.redacted("secret number 99") == "***"
