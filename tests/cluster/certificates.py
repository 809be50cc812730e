"""The authority of a control plane, the certificates that it signs, and the key of service accounts."""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: Names by which pods and controllers reach the servers.
NAMES = (
    "localhost",
    "kubernetes.default.svc",
    "*.kube-system.svc",
    "keda-operator.keda.svc",
    "keda-operator.keda.svc.cluster.local",
    "keda-metrics-apiserver.keda.svc",
    "keda-admission-webhooks.keda.svc",
)


class Authority:
    """An authority whose files are in a folder: `ca.crt`, and for each NAME that it signs `NAME.crt` and `NAME.key`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("wakupush rehearsal", None)
        certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = self.folder / "ca.crt"
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, file: str, common_name: str, organisation: str | None = None) -> tuple[Path, Path]:
        """Write a certificate for servers and clients, and its key, and return their paths."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [*map(x509.DNSName, NAMES), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            _builder(_name(common_name, organisation), self._name, key)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        paths = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(_private(key))
        return paths


def service_account_key(folder: Path) -> tuple[Path, Path]:
    """Write the key that signs tokens of service accounts, and return the paths of its public and private half."""
    key = rsa.generate_private_key(65537, 2048)
    public, private = folder / "sa.pub", folder / "sa.key"
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    private.write_bytes(_private(key))
    return public, private


def _name(common_name: str, organisation: str | None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organisation:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    return x509.Name(parts)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    return builder.not_valid_before(now - dt.timedelta(hours=1)).not_valid_after(now + dt.timedelta(days=1))


def _usage(*, signs: bool) -> x509.KeyUsage:
    none = dict.fromkeys(("content_commitment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"))
    flags = dict.fromkeys(none, False)
    return x509.KeyUsage(digital_signature=True, key_encipherment=False, key_cert_sign=signs, crl_sign=signs, **flags)


def _private(key: PrivateKeyTypes) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
