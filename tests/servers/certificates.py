"""Certificates for tests: an authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


class Authority:
    """Signs servers and clients; its own certificate is `ca`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name(name)
        basic = x509.BasicConstraints(ca=True, path_length=0)
        certificate = _builder(self._subject, self._subject, self._key).add_extension(basic, critical=True)
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))

    def sign(self, name: str, *, server: bool = False, uri: str = "", ended: bool = False) -> Pair:
        """For a server of this machine, or for a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        use = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        others: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri)] if uri else []
        if server:
            others += [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = _builder(_name(name), self._subject, key, ended=ended)
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        encoding, no_password = serialization.Encoding.PEM, serialization.NoEncryption()
        _replace(pair.key, key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, no_password))
        _replace(pair.cert, _pem(builder.sign(self._key, hashes.SHA256())))
        return pair


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, ended: bool = False
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * _DAY)
        .not_valid_after(now - _DAY if ended else now + _DAY)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _replace(path: Path, data: bytes) -> None:
    """At once, as certificates are rotated."""
    path.with_suffix(".new").write_bytes(data)
    os.replace(path.with_suffix(".new"), path)
