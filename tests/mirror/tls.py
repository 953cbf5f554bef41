"""An authority that tests trust, and what it vouches for."""

from __future__ import annotations

import datetime as dt
import ipaddress
import secrets
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

LOOPBACK = "127.0.0.1"
_SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Certificates:
    """An authority that nobody else knows, and what it vouches for: 127.0.0.1; with all that RFC 5280 asks for."""

    trusted: Path  # everybody whom a client is to trust: this authority and the machine's own
    server: ssl.SSLContext = field(repr=False)

    @classmethod
    def made_in(cls, folder: Path) -> Self:
        """Make new ones, with their files in ``folder``."""
        authority_key, authority = _certificate(f"a test's authority {secrets.token_hex(8)}")  # names tell them apart
        key, certificate = _certificate(LOOPBACK, authority_key, authority)
        trusted, chain = folder / "trusted.pem", folder / "server.pem"
        usual = ssl.get_default_verify_paths().cafile
        trusted.write_bytes(
            (Path(usual).read_bytes() if usual else b"") + authority.public_bytes(serialization.Encoding.PEM)
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        return cls(trusted, context)


def _certificate(
    name: str, issuer_key: ec.EllipticCurvePrivateKey | None = None, issuer: x509.Certificate | None = None
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=7))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer is None:
        builder = builder.add_extension(_SIGNS_CERTIFICATES, critical=True)
    else:
        here = x509.IPAddress(ipaddress.ip_address(LOOPBACK))
        above = x509.AuthorityKeyIdentifier.from_issuer_public_key((issuer_key or key).public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName([here]), critical=False)
        builder = builder.add_extension(above, critical=False)
    return key, builder.sign(issuer_key or key, hashes.SHA256())
