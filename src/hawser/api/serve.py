"""Runs the API under uvicorn."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from hawser.api.identity import is_loopback
from hawser.api.joined import Joined
from hawser.errors import ConfigError, MissingExtra, install
from hawser.stores.url import without_password
from hawser.target import spec_of
from hawser.worker.worker import run_loop

if TYPE_CHECKING:
    from hawser.app import Hawser

_logger = logging.getLogger("hawser.api")


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how to listen."""

    host: str = "127.0.0.1"
    port: int = 8080
    require_key: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    """Only clients with a certificate of this authority may connect."""
    drain_timeout: float = 10.0
    """Seconds that requests under way have to finish after SIGTERM."""
    connections: int = 10_000
    """Most requests and connections at once; beyond that callers get 503."""


def serve(app: Hawser, options: ServeOptions) -> None:
    """Serve until SIGTERM or SIGINT. Refuses to open to the network while there is no key to close the door with."""
    try:
        import uvicorn  # noqa: PLC0415  # only a server needs it
    except ModuleNotFoundError as error:
        raise MissingExtra(f"serve: it needs the package 'uvicorn'; {install('server')}") from error
    public = not is_loopback(options.host)
    api = app.asgi(require_key=public or options.require_key)
    config = uvicorn.Config(
        api,
        http=_protocol(),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=options.connections,
        timeout_graceful_shutdown=max(1, round(options.drain_timeout)),
        **_tls(options),
    )

    class Server(uvicorn.Server):
        """Ends with exit code 0 after a signal, and tells the API at once, so that claims that wait and streams end, too."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.on_signal, number)
            yield

        def on_signal(self, number: int) -> None:
            self.handle_exit(number, None)
            api.stopping.set()

    async def main() -> None:
        store = await app.store()
        if public and not any(record.live for record in await store.api_keys()):
            raise ConfigError(
                f"host: {options.host!r} can be reached from other machines, and the store has no live API key; "
                "make one with: hawser keys create NAME --role admin, or bind to 127.0.0.1"
            )
        with _listening(options) as listener:
            scheme = "https" if options.tls_cert else "http"
            host, port = listener.getsockname()[:2]
            shown = without_password(app.config.store)
            _logger.info("serving %s on %s://%s:%d, store %s", spec_of(app) or "an app", scheme, host, port, shown)
            await Server(config).serve(sockets=[listener])

    run_loop(main())


def _protocol() -> Any:
    """uvicorn's faster protocol, with answers in one write; without httptools whichever uvicorn has."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # noqa: PLC0415  # only a server needs it
    except ModuleNotFoundError:
        return "auto"

    class Protocol(HttpToolsProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
            super().connection_made(Joined(transport, self.loop))  # type: ignore[arg-type]  # all that is needed of one

    return Protocol


def _listening(options: ServeOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, options.port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(f"host, port: cannot listen on {options.host}:{options.port}: {error.strerror}") from error


def _tls(options: ServeOptions) -> dict[str, Any]:
    if (options.tls_cert is None) != (options.tls_key is None):
        raise ConfigError("tls_cert, tls_key: give both or none")
    if options.tls_client_ca is None:
        return {"ssl_certfile": options.tls_cert, "ssl_keyfile": options.tls_key}
    if options.tls_cert is None:
        raise ConfigError("tls_client_ca: clients show certificates only over TLS; add tls_cert and tls_key")
    import ssl  # noqa: PLC0415  # only with TLS

    return {
        "ssl_certfile": options.tls_cert,
        "ssl_keyfile": options.tls_key,
        "ssl_ca_certs": options.tls_client_ca,
        "ssl_cert_reqs": ssl.CERT_REQUIRED,
    }
