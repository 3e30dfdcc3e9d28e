"""A node elsewhere: `stoker --node https://host:port`, with the certificate of who asks."""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason

_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Remote:
    """Where it is, and what the connection is made with."""

    host: str
    port: int
    context: ssl.SSLContext

    @classmethod
    def of(cls, url: str, cert: str, key: str, ca: str) -> Remote:
        """Raises StokerError for what can never work."""
        host, port = _address(url)
        for value, option, what in ((cert, "--client-cert", "certificate"), (ca, "--ca", "node's CA")):
            if not value:
                step = f"name the file of the {what} with {option}."
                raise StokerError(Reason.InvalidUsage, f"{option} is missing", place=url, next_step=step)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        path = ca
        try:
            context.load_verify_locations(ca)
            path = cert
            context.load_cert_chain(cert, key or None)
        except OSError as error:  # ssl.SSLError is one
            text = f"it cannot be used ({_words(error)})"
            step = "give PEM files; a key that is not in --client-cert with --client-key."
            raise StokerError(Reason.InvalidUsage, text, place=path, next_step=step) from None
        return cls(host, port, context)

    @property
    def place(self) -> str:
        return f"https://{self.host}:{self.port}"

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.host, self.port, timeout=_TIMEOUT_S, context=self.context)

    def failure(self, error: Exception) -> StokerError:
        """Why there was no answer."""
        refused, gone = Reason.CertificateRefused, Reason.NodeNotRunning
        if isinstance(error, ssl.SSLCertVerificationError):
            text = f"the node's certificate is not accepted ({error.verify_message})"
            step = "give the CA that signed it with --ca, and the name that is in it with --node."
            return StokerError(refused, text, place=self.place, next_step=step)
        if isinstance(error, ssl.SSLError) and "WRONG_VERSION" in (error.reason or ""):
            step = "is it the port of STOKER_ADMIN_PORT?"
            return StokerError(gone, "what answers there speaks no TLS", place=self.place, next_step=step)
        if isinstance(error, ssl.SSLError | ConnectionResetError | BrokenPipeError | http.client.HTTPException):
            text = f"the node ended the connection, as it does when it refuses a certificate ({_words(error)})"
            step = "is --client-cert valid, and signed by the node's STOKER_ADMIN_CLIENT_CA_FILE?"
            return StokerError(refused, text, place=self.place, next_step=step)
        if isinstance(error, TimeoutError):
            return StokerError(
                Reason.Timeout, "the node does not answer", place=self.place, next_step="see the node's log."
            )
        step = "is the node there, and its STOKER_ADMIN_PORT set?"
        return StokerError(gone, f"there is no way to the node ({_words(error)})", place=self.place, next_step=step)


def _address(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        if parts.scheme == "https" and parts.hostname and parts.port and parts.path in ("", "/"):
            return parts.hostname, parts.port
    except ValueError:
        pass
    step = "write https://host:port."
    raise StokerError(Reason.InvalidUsage, f"{url!r} is no address of a node", place="--node", next_step=step)


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
