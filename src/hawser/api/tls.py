"""The files for TLS, looked at before the server starts: what is wrong with which, and what to do about it."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, NoReturn

from hawser.errors import ConfigError


def tls_of(cert: str | None, key: str | None, client_ca: str | None) -> dict[str, Any]:
    """How uvicorn is told; a `ConfigError` names the option whose file cannot be used."""
    if (cert is None) != (key is None):
        raise ConfigError("tls_cert, tls_key: give both or none")
    if cert is None or key is None:
        if client_ca is not None:
            raise ConfigError("tls_client_ca: clients show certificates only over TLS; add tls_cert and tls_key")
        return {}
    for name, path in (("tls_cert", cert), ("tls_key", key), ("tls_client_ca", client_ca)):
        if path is not None:
            _read(name, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _certificates(context, "tls_cert", cert)
    _fits(context, cert, key)
    if client_ca is None:
        return {"ssl_certfile": cert, "ssl_keyfile": key}
    _certificates(context, "tls_client_ca", client_ca)
    return {"ssl_certfile": cert, "ssl_keyfile": key, "ssl_ca_certs": client_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}


def _read(name: str, path: str) -> None:
    try:
        Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: cannot read {path!r}: {error.strerror}; name a PEM file that this user may read") from error


def _certificates(context: ssl.SSLContext, name: str, path: str) -> None:
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        begins = "-----BEGIN CERTIFICATE-----"
        raise ConfigError(f"{name}: {path!r} has no certificate in PEM; give the file that has a line {begins}") from error


def _fits(context: ssl.SSLContext, cert: str, key: str) -> None:
    def ask() -> NoReturn:
        # OpenSSL would ask for it at the terminal, which a service does not have.
        raise ConfigError(
            f"tls_key: {key!r} is locked with a pass phrase; unlock it with: openssl pkey -in {key} -out unlocked.pem"
        )

    try:
        context.load_cert_chain(cert, key, password=ask)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"tls_key: {key!r} does not belong to the first certificate of {cert!r}; give the key that it was made with"
        elif error.reason is not None and ("EE_" in error.reason or "CA_" in error.reason):
            text = f"tls_cert: OpenSSL refuses {cert!r} ({error.reason}); make a certificate with a stronger key"
        else:
            text = f"tls_key: {key!r} has no private key in PEM; give the file that has a line -----BEGIN PRIVATE KEY-----"
        raise ConfigError(text) from error
