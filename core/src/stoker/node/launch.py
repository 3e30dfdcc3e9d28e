"""Start a node in the background, or become one."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.node.settings import MAX_RUN_DIR, Settings
from stoker.node.statefolder import ALREADY_RUNNING, start_error_file

_START_TIMEOUT_S = 30.0
_POLL_S = 0.02


def ensure_node(settings: Settings) -> str:
    """The admin socket of the running node; a node is started in the background when there is none.

    Raises StokerError: the reason for which the node could not start, or NodeStartFailed.
    """
    if is_running(settings):
        return settings.admin_socket
    prepare(settings)
    log = os.open(settings.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    process = subprocess.Popen(
        _command(settings), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
    )
    os.close(log)
    _wait(settings, process)
    return settings.admin_socket


def become_node(settings: Settings) -> None:
    """Replace this process by the node's first one, in the foreground."""
    prepare(settings)
    command = _command(settings)
    os.execv(command[0], command)  # noqa: S606 - no shell: our own interpreter with a fixed argument list


def is_running(settings: Settings) -> bool:
    """Whether a node answers on the admin socket."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(settings.admin_socket)
        return True
    return False


def prepare(settings: Settings) -> None:
    """Make the private folders. Raises StokerError(NodeStartFailed)."""
    if len(settings.runtime_dir) > MAX_RUN_DIR:
        text = f"the folder for sockets has {len(settings.runtime_dir)} characters; unix sockets allow {MAX_RUN_DIR}"
        raise StokerError(
            Reason.NodeStartFailed, text, place=settings.runtime_dir, next_step="set STOKER_RUN_DIR to a shorter one."
        )
    for folder in (settings.state_dir, settings.runtime_dir):
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.chmod(folder, 0o700)
        except OSError as error:
            text = f"the folder cannot be made ({os.strerror(error.errno or 0)})"
            step = "set STOKER_STATE_DIR and STOKER_RUN_DIR to folders that you may write."
            raise StokerError(Reason.NodeStartFailed, text, place=folder, next_step=step) from error
    with contextlib.suppress(FileNotFoundError):
        os.unlink(start_error_file(settings.to_config()))


def _command(settings: Settings) -> list[str]:
    return [sys.executable, "-m", "stoker.node.supervisor", json.dumps(settings.to_config())]


def _wait(settings: Settings, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < end:
        if is_running(settings):
            return
        code = process.poll()
        if code is not None and code != ALREADY_RUNNING:  # else: another command starts the node at this moment
            raise _start_error(settings, code)
        time.sleep(_POLL_S)
    process.terminate()  # nobody waits for it any more
    step = f"see {settings.log_file}"
    raise StokerError(
        Reason.NodeStartFailed, f"the node did not answer within {_START_TIMEOUT_S:.0f} s", next_step=step
    )


def _start_error(settings: Settings, code: int) -> StokerError:
    with contextlib.suppress(OSError, ValueError), open(start_error_file(settings.to_config()), "rb") as file:
        return StokerError.from_json(json.load(file))
    step = f"see {settings.log_file}"
    return StokerError(Reason.NodeStartFailed, f"the node ended at once (exit code {code})", next_step=step)
