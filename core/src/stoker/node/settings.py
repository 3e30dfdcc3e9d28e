"""Where a node keeps state, sockets and cache, and how many processes it runs; from STOKER_* variables, read once."""

from __future__ import annotations

import os
from typing import Any, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

# The longest path of a unix socket is 107 bytes; the longest name below the run folder is `/keeper.sock`.
MAX_RUN_DIR = 107 - len("/fetch-999.sock")


_ADMIN_FILES = ("admin_cert_file", "admin_key_file", "admin_client_ca_file")


def _absolute(path: str) -> str:
    """The processes of the node work in `/`."""
    return os.path.abspath(path) if path else ""


def _private(root: str, variable: str, fallback: str) -> str:
    """`root` for the superuser, else the XDG folder of `variable`, else `fallback` below the home folder."""
    if os.geteuid() == 0:
        return root
    base = os.environ.get(variable) or os.path.expanduser(fallback)
    return os.path.join(base, "stoker")


class Settings(BaseSettings):
    """The settings of one node. Built once at the edge and passed down."""

    model_config = SettingsConfigDict(env_prefix="STOKER_", frozen=True, extra="ignore")

    state_dir: str = Field(default_factory=lambda: _private("/var/lib/stoker", "XDG_STATE_HOME", "~/.local/state"))
    run_dir: str = ""
    cache_dir: str = Field(default_factory=lambda: _private("/var/cache/stoker", "XDG_CACHE_HOME", "~/.cache"))
    cache_quota: str = "-10Gi"
    cache_inodes: int = 0
    reserve_free: str = "150Mi"
    high_watermark: float = 1.0
    low_watermark: float = 0.7
    fuse_workers: int = 0
    fetchers: int = 0
    s3_port: int = Field(0, ge=0, le=65535)
    s3_bind: str = "127.0.0.1"
    s3_workers: int = Field(0, ge=0, le=64)
    idle_exit_seconds: float = 0.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    metrics_port: int = Field(default=0, ge=0, le=65535)
    metrics_address: str = "127.0.0.1"
    admin_port: int = Field(default=0, ge=0, le=65535)
    admin_address: str = "127.0.0.1"
    admin_cert_file: str = ""
    admin_key_file: str = ""
    admin_client_ca_file: str = ""
    admin_allowed: str = ""
    runtime_file: str = ""

    @property
    def runtime_dir(self) -> str:
        """The folder of the sockets, short enough for a unix socket path."""
        if self.run_dir:
            return self.run_dir
        if os.geteuid() == 0:
            return "/run/stoker"
        base = os.environ.get("XDG_RUNTIME_DIR", "")
        return os.path.join(base, "stoker") if os.path.isdir(base) else os.path.join(self.state_dir, "run")

    @property
    def admin_socket(self) -> str:
        return os.path.join(self.runtime_dir, "admin.sock")

    @property
    def log_file(self) -> str:
        return os.path.join(self.state_dir, "node.log")

    def worker_count(self) -> int:
        """FUSE workers: one per core up to 8; two at least, so that one that is restarted never leaves nobody."""
        return self.fuse_workers or max(2, min(8, os.cpu_count() or 2))

    def fetcher_count(self) -> int:
        """Fetchers: one for two cores up to 8; each moves about 1 GB/s."""
        return self.fetchers or max(1, min(8, (os.cpu_count() or 2) // 2))

    def s3_count(self) -> int:
        """Processes that serve S3: one for two cores up to 4; of large answers the kernel sends the bytes."""
        return self.s3_workers or max(1, min(4, (os.cpu_count() or 2) // 2))

    def to_config(self) -> dict[str, Any]:
        """What the processes of the node are started with. Holds no secret: it is visible in process arguments."""
        return {
            **self.model_dump(),
            "run_dir": self.runtime_dir,
            **{name: _absolute(getattr(self, name)) for name in _ADMIN_FILES},
            "fuse_workers": self.worker_count(),
            "fetchers": self.fetcher_count(),
            "s3_workers": self.s3_count(),
        }
