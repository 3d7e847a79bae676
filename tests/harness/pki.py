"""The test cluster's own certificate authority, service account key and kubeconfig files."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Authority:
    """Signs certificates into one directory; valid for a week, from a day ago."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self.directory = directory
        self.ca_file = directory / "ca.crt"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("sluice-test-ca", [])
        now = datetime.datetime.now(datetime.UTC)
        self._since, self._until = (
            now - datetime.timedelta(days=1),
            now + datetime.timedelta(days=7),
        )
        builder = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.ca_file.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def server(self, name: str, hosts: list[str], addresses: list[str]) -> tuple[Path, Path]:
        """Certificate and key files of a server."""
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        return self._sign(name, _name(name, []), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, name: str, user: str, groups: list[str]) -> tuple[Path, Path]:
        """Certificate and key files that the API server takes for ``user`` in ``groups``."""
        return self._sign(name, _name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def service_account_key(self) -> tuple[Path, Path]:
        """Private and public key files that sign service account tokens."""
        private, public = self.directory / "sa.key", self.directory / "sa.pub"
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        _write_key(private, key)
        public.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        return private, public

    def kubeconfig(self, path: Path, server: str, user: str, groups: list[str]) -> Path:
        """A kubeconfig file for ``user``; everything it needs is inside."""
        certificate, key = self.client(path.stem, user, groups)
        # kubeconfig wants base64, or paths; paths are easier to read for a person
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sluice", "cluster": {
                "server": server, "certificate-authority": str(self.ca_file)}}],
            "users": [{"name": user, "user": {
                "client-certificate": str(certificate), "client-key": str(key)}}],
            "contexts": [{"name": "sluice", "context": {"cluster": "sluice", "user": user}}],
            "current-context": "sluice",
        }  # fmt: skip
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        path.chmod(0o600)
        return path

    def _sign(
        self,
        name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        names: list[x509.GeneralName],
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, key).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate_file, key_file = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        certificate_file.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        _write_key(key_file, key)
        return certificate_file, key_file

    def _builder(self, subject: x509.Name, key: PrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._since)
            .not_valid_after(self._until)
        )


def _name(user: str, groups: list[str]) -> x509.Name:
    """Kubernetes reads the user from the common name and groups from the organisations."""
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_key(path: Path, key: PrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
