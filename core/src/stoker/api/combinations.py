"""Which types, directions and modes go together: the table of the DataSet."""

from __future__ import annotations

from typing import Literal

from stoker.api.fielderror import FieldError
from stoker.api.reasons import Reason

DataSetType = Literal["uri_folder", "uri_file", "mltable"]
Mode = Literal["ro_mount", "rw_mount", "download", "upload", "direct", "eval_mount", "eval_download"]
Direction = Literal["input", "output"]

SUPPORTED: dict[tuple[DataSetType, Direction], tuple[Mode, ...]] = {
    ("uri_folder", "input"): ("download", "ro_mount", "direct"),
    ("uri_file", "input"): ("download", "ro_mount", "direct"),
    ("mltable", "input"): ("download", "ro_mount", "direct", "eval_download", "eval_mount"),
    ("uri_folder", "output"): ("upload", "rw_mount"),
    ("uri_file", "output"): ("upload", "rw_mount"),
    ("mltable", "output"): ("upload", "rw_mount", "direct"),
}


def direction_of(mode: Mode, has_output: bool) -> Direction:
    """Only `direct` can be both ways: it is an output when the document has an `output` block."""
    return "output" if mode in ("upload", "rw_mount") or (mode == "direct" and has_output) else "input"


def check_combination(kind: DataSetType | None, mode: Mode, has_output: bool) -> None:
    """Raises FieldError UnsupportedCombination. `kind` None is decided later: uri_folder or uri_file, which agree."""
    direction = direction_of(mode, has_output)
    kind = kind or "uri_folder"
    modes = SUPPORTED[kind, direction]
    if mode not in modes:
        raise FieldError(
            f"type {kind} does not go with mode {mode} as an {direction}",
            accepted=f"The modes of {kind} are {', '.join(modes)}.",
            reason=Reason.UnsupportedCombination,
            at=("mode",),
        )
    if has_output and direction == "input":
        raise FieldError(
            f"mode {mode} writes nothing",
            accepted="Remove output, or set mode to rw_mount or upload.",
            reason=Reason.UnsupportedCombination,
            at=("output",),
        )
