"""Certificates for tests, made on the spot by `openssl`: an authority, and who is signed by it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
"""elliptic keys are quick to make"""


@dataclass(frozen=True)
class Certificates:
    """One authority, a broker for 127.0.0.1 and a client, both signed by it; PEM files."""

    directory: Path

    @property
    def authority(self) -> str:
        return str(self.directory / "ca.pem")

    @property
    def broker(self) -> str:
        return str(self.directory / "broker.pem")

    @property
    def client(self) -> str:
        return str(self.directory / "client.pem")

    def text(self, name: str) -> str:
        return (self.directory / name).read_text()

    def sign(self, name: str, subject: str) -> None:
        """NAME.key and NAME.crt, and both in NAME.pem."""
        (self.directory / "extensions").write_text("subjectAltName=IP:127.0.0.1\n")
        key_files = ("-keyout", f"{name}.key", "-out", f"{name}.csr")
        _openssl(self.directory, "req", *CURVE, *key_files, "-subj", subject)
        authority = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
        files = ("-in", f"{name}.csr", "-extfile", "extensions", "-out", f"{name}.crt")
        _openssl(self.directory, "x509", "-req", *authority, *files)
        (self.directory / f"{name}.pem").write_text(self.text(f"{name}.key") + self.text(f"{name}.crt"))


def openssl() -> str | None:
    return shutil.which("openssl")


def _openssl(directory: Path, *arguments: str) -> None:
    subprocess.run([openssl() or "openssl", *arguments], cwd=directory, check=True, capture_output=True)


def make_certificates(directory: Path) -> Certificates:
    """Also the client's as PKCS12 (client.p12, password x), and its key encrypted (locked.key, unlock)."""
    made = Certificates(directory)
    files = ("-keyout", "ca.key", "-out", "ca.pem", "-addext", "keyUsage=keyCertSign,cRLSign")
    _openssl(directory, "req", "-x509", *CURVE, *files, "-days", "2", "-subj", "/CN=test authority")
    for name in ("broker", "client"):
        made.sign(name, f"/CN={name}")
    _openssl(directory, "pkcs12", "-export", "-in", "client.pem", "-out", "client.p12", "-passout", "pass:x")
    locking = ("-in", "client.key", "-out", "locked.key", "-passout", "pass:unlock", "-v2", "aes256")
    _openssl(directory, "pkcs8", "-topk8", *locking)
    return made
