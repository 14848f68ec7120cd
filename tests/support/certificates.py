"""Certificates of a private authority, made by openssl and thrown away with their directory."""

import subprocess
from pathlib import Path


def make_authority(place: Path) -> Path:
    """`ca.pem`, and `cert.pem` with `key.pem` for 127.0.0.1 and good.test, below `place`."""
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    _openssl(
        *["req", "-x509", *new, "-keyout", place / "ca.key", "-out", place / "ca.pem"],
        *["-subj", "/CN=test authority", "-days", "2"],
        *["-addext", "keyUsage=critical,keyCertSign,cRLSign"],
    )
    _openssl(
        *["req", "-x509", *new, "-keyout", place / "key.pem", "-out", place / "cert.pem"],
        *["-subj", "/CN=peer", "-days", "2", "-CA", place / "ca.pem", "-CAkey", place / "ca.key"],
        *["-addext", "subjectAltName=IP:127.0.0.1,DNS:good.test"],
        *["-addext", "basicConstraints=critical,CA:FALSE"],
    )
    return place


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
