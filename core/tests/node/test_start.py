"""A node that cannot start says why at once, and does not try again and again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.api.errors import StokerError
from stoker.node.launch import ensure_node
from stoker.node.settings import Settings


def settings(folder: Path, **more: str) -> Settings:
    return Settings(
        state_dir=str(folder / "state"), run_dir=str(folder / "run"), cache_dir=str(folder / "cache"), **more
    )


@pytest.mark.parametrize(
    ("prepare", "more", "reason"),
    [
        (lambda cache: (cache / "theirs").write_text("x"), {}, "CacheFolderForeign"),
        (lambda cache: None, {"cache_quota": "much"}, "NodeStartFailed"),
    ],
)
def test_the_reason_reaches_the_command(tmp_path: Path, prepare: object, more: dict[str, str], reason: str) -> None:
    (tmp_path / "cache").mkdir()
    prepare(tmp_path / "cache")  # type: ignore[operator]
    with pytest.raises(StokerError) as caught:
        ensure_node(settings(tmp_path, **more))
    assert caught.value.reason == reason
    assert not os.path.exists(tmp_path / "run" / "admin.sock")
