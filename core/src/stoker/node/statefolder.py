"""What lies in the state and run folders: files that are written whole or not at all, their names, and what the first
process of a node and the command that started it share.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from typing import Any

ALREADY_RUNNING = 75  # exit code: another node holds the state (EX_TEMPFAIL of sysexits.h)


def write_json(path: str, data: Any) -> None:
    """In the place of what was there, at once: a reader finds the one or the other."""
    temporary = f"{path}.new"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(data, file)
    os.replace(temporary, path)


def name_of(data_set: str) -> str:
    """`namespace.name`, for files and folders of a DataSet; names of namespaces have no dot."""
    return data_set.replace("/", ".", 1)


def data_set_of(name: str) -> str:
    """The inverse of `name_of`."""
    return name.replace(".", "/", 1)


def start_error_file(config: dict[str, Any]) -> str:
    """Where a node that could not start leaves the reason."""
    return os.path.join(config["run_dir"], "start-error.json")


def leave_start_error(config: dict[str, Any], error: dict[str, str]) -> None:
    """Leave the reason of a failed start, if there is one, where the command that started the node finds it."""
    if error:
        with open(start_error_file(config), "w", encoding="utf-8") as file:
            json.dump(error, file)


def forget_processes(config: dict[str, Any]) -> None:
    """Nobody listens any more: no socket and no lock of a process stays."""
    for name in os.listdir(config["run_dir"]):
        if name.endswith((".sock", ".lock")):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(config["run_dir"], name))


def take_state(config: dict[str, Any]) -> int:
    """The lock of the state folder, shared by supervisor and daemon: a second node on the same state is refused."""
    for folder in (config["state_dir"], config["run_dir"]):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    fd = os.open(os.path.join(config["state_dir"], "node.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"NodeAlreadyRunning: {config['state_dir']}: another node runs on this state.", file=sys.stderr)
        sys.exit(ALREADY_RUNNING)
    return fd
