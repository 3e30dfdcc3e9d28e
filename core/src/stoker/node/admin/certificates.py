"""The TLS of the admin port: this node's certificate, whose clients it trusts, and who of them may come in.

The files are read again when they change; what was read last stays while new ones cannot be read.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason

log = structlog.get_logger("stoker.api")

_FILES = {
    "admin_cert_file": "the node's certificate",
    "admin_key_file": "its key",
    "admin_client_ca_file": "the certificates that sign clients",
}
_NAMES = ("URI", "DNS")

Stamp = tuple[tuple[int, int, int], ...]


class Trust(ssl.SSLContext):
    """What handshakes are made with. `ca`: whose clients were trusted."""

    ca: bytes = b""


@dataclass(frozen=True, slots=True)
class Client:
    """Who a certificate says that it is: the common names of the subject, and the names beside it."""

    names: tuple[str, ...]
    ends: float

    @classmethod
    def of(cls, certificate: Mapping[str, Any]) -> Client:
        """As `ssl.SSLSocket.getpeercert` has it."""
        subject = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
        others = [value for kind, value in certificate.get("subjectAltName", ()) if kind in _NAMES]
        return cls((*subject, *others), ssl.cert_time_to_seconds(certificate["notAfter"]))


class Certificates:
    """Raises StokerError when the files cannot be used at the start."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._paths = [str(config[name]) for name in _FILES]
        self._allowed = frozenset(name.strip() for name in str(config["admin_allowed"]).split(",") if name.strip())
        for name, what in _FILES.items():
            if not config[name]:
                step = f"name the file of {what}, or set STOKER_ADMIN_PORT to 0."
                text = "the admin port needs it"
                raise StokerError(Reason.NodeStartFailed, text, place=f"STOKER_{name.upper()}", next_step=step)
        self._stamp: Stamp = ()
        self._refused: Stamp = ()
        self.context = self._read()

    def look(self) -> None:
        """Read the files again when they are not what they were."""
        try:
            stamp = self._stamps()
            if stamp in (self._stamp, self._refused):
                return
            self._refused = stamp
            self.context = self._read()
            log.info("certificates read again", files=self._paths)
        except (StokerError, OSError) as error:
            log.warning("certificates cannot be read; the last ones stay", error=str(error))

    def check(self, context: ssl.SSLContext, certificate: Mapping[str, Any]) -> None:
        """Whether who came may still come in. Raises StokerError CertificateRefused."""
        client = Client.of(certificate)
        name = client.names[0] if client.names else ""
        if client.ends < time.time():
            step = "connect again with a new one."
            raise StokerError(Reason.CertificateRefused, "the certificate has expired", place=name, next_step=step)
        if not isinstance(context, Trust) or context.ca != self.context.ca:
            text, step = "who signs clients has changed since this connection was made", "connect again."
            raise StokerError(Reason.CertificateRefused, text, place=name, next_step=step)
        if self._allowed and not self._allowed.intersection(client.names):
            text, step = "no name of the certificate is allowed here", "add one to STOKER_ADMIN_ALLOWED of the node."
            raise StokerError(Reason.CertificateRefused, text, place=name, next_step=step)

    def _read(self) -> Trust:
        certificate, key, ca = self._paths
        context = Trust(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0  # a session that is resumed would bring the client of an earlier handshake
        path = ca
        try:
            stamp = self._stamps()
            with open(ca, "rb") as file:
                context.ca = file.read()
            context.load_verify_locations(ca)
            path = certificate
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            place = getattr(error, "filename", None) or path
            text = f"it cannot be used ({_words(error)})"
            step = "give files in PEM; the key without a password."
            raise StokerError(Reason.NodeStartFailed, text, place=str(place), next_step=step) from None
        self._stamp = stamp
        return context

    def _stamps(self) -> Stamp:
        found = [os.stat(path) for path in self._paths]
        return tuple((status.st_ino, status.st_mtime_ns, status.st_size) for status in found)


def _no_password() -> str:
    raise ValueError("the key has a password")


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return (getattr(error, "strerror", None) or str(error)).lower()
