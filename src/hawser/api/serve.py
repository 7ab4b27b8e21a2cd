"""Runs the API under uvicorn."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hawser.api.connections import ConnectionLimits, Connections, room
from hawser.api.keyless import Closed, Keyless, OwnUser, is_loopback
from hawser.api.server import Api
from hawser.api.tls import tls_of
from hawser.client.app_loader import spec_of
from hawser.errors import ConfigError, MissingExtra, install
from hawser.store.api_key import ApiKey
from hawser.stores.url import without_password
from hawser.worker.loop import run_loop
from hawser.worker.signals import hear_signals, tell_stacks

if TYPE_CHECKING:
    from hawser.app import Hawser

_logger = logging.getLogger("hawser.api")

IDLE_CONNECTION_S: Final = 5
"""Seconds that a connection may stay open after an answer without another request."""


HANDSHAKE: Final = ConnectionLimits().within
"""Seconds that a TLS handshake may take: as long as the head of a request."""


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how to listen, and to whom."""

    host: str = "127.0.0.1"
    port: int = 8080
    uds: str | None = None
    """Listen on this Unix socket instead; a proxy of the same group may connect."""
    require_key: bool = False
    """Every caller needs a key. Otherwise, on this machine, the user of this process needs none."""
    read_only: bool = False
    proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose `X-Forwarded-For` is believed."""
    root_path: str = ""
    """What a proxy cuts off the path."""
    public_url: str | None = None
    """Where browsers find this server, behind its proxy. As in `ApiOptions`."""
    max_attempts: int = 100
    max_waiting: int = 1_000_000
    """As in `ApiOptions`."""
    access_log: bool = False
    """As in `ApiOptions`."""
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    """Only clients with a certificate of this authority may connect."""
    drain_timeout: float = 10.0
    """Seconds that requests under way have to finish after SIGTERM."""
    connections: int = 10_000
    """Most connections at once. Then those that have asked for nothing yet give way, and after them callers get 503."""
    per_address: int = 200
    """Most connections from one address, but for this machine and named proxies; beyond that callers get 429."""

    @property
    def public(self) -> bool:
        """Whether other machines can connect."""
        return self.uds is None and not is_loopback(self.host)


def serve(app: Hawser, options: ServeOptions) -> None:
    """Serve until SIGTERM or SIGINT. Refuses to open to the network while there is no API key."""
    try:
        import uvicorn  # noqa: PLC0415  # only a server needs it
    except ModuleNotFoundError as error:
        raise MissingExtra(f"serve: it needs the package 'uvicorn'; {install('server')}") from error
    _check_callers(options)
    api = Api(
        app,
        Closed() if options.public or options.require_key else OwnUser(),
        read_only=options.read_only,
        public_url=options.public_url,
        max_attempts=options.max_attempts,
        max_waiting=options.max_waiting,
        access_log=options.access_log,
    )
    config = uvicorn.Config(
        api,
        http=_protocol(options),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=bool(options.proxies),
        forwarded_allow_ips=list(options.proxies),
        root_path=options.root_path,
        timeout_keep_alive=IDLE_CONNECTION_S,
        timeout_graceful_shutdown=max(1, round(options.drain_timeout)),
        **tls_of(options.tls_cert, options.tls_key, options.tls_client_ca),
    )

    class HttpServer(uvicorn.Server):
        """Ends with exit code 0 after a signal, and tells the API at once, so that claims that wait and streams end, too."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            hear_signals(self.on_signal)
            tell_stacks()
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            loop = asyncio.get_running_loop()
            if options.tls_cert is not None:
                # uvicorn has no option for it, and the default is a minute.
                loop.create_server = partial(loop.create_server, ssl_handshake_timeout=HANDSHAKE)  # type: ignore[method-assign]
            await super().startup(sockets)

        def on_signal(self, number: int) -> None:
            self.handle_exit(number, None)
            api.stopping.set()

    async def main() -> None:
        store = await app.store()
        live = [record.key for record in await store.api_keys() if record.live]
        if options.public and not live:
            raise ConfigError(
                f"host: {options.host!r} can be reached from other machines, and the store has no live API key; "
                "make one with: hawser keys create NAME --role admin, or bind to 127.0.0.1"
            )
        with _listening(options) as listener:
            shown = without_password(app.config.store)
            _logger.info("serving %s on %s, store %s", spec_of(app) or "an app", _where(options, listener), shown)
            _logger.info("%s", who_may(options, api.keyless, live))
            _logger.info("%s", _dashboard(api, options.public_url or _where(options, listener)))
            await HttpServer(config).serve(sockets=[listener])

    run_loop(main())


def who_may(options: ServeOptions, keyless: Keyless, live: Sequence[ApiKey]) -> str:
    """In one line: who may do what."""
    does = "look at everything, change nothing" if options.read_only else "do everything"
    count = f"{len(live)} live key{'' if len(live) == 1 else 's'}"
    if keyless.token is None:
        hint = "" if live else ": every caller is refused; make one with: hawser keys create NAME --role admin"
        return f"every caller needs a key, and may do what its roles say{_only_reads(options)}; the store has {count}{hint}"
    return (
        f"without a key the user of this process ({os.geteuid()}) may {does}, from this machine and through no proxy, and so may "
        f"callers with Authorization: Bearer {keyless.token}; keys may do what their roles say{_only_reads(options)}: {count}"
    )


def _dashboard(api: Api, where: str) -> str:
    missing = api.dashboard.missing
    return f"the dashboard is at {where.rstrip('/')}/ui/" if missing is None else f"there is no dashboard: {missing}"


def _only_reads(options: ServeOptions) -> str:
    return ", reading only" if options.read_only else ""


def _check_callers(options: ServeOptions) -> None:
    """Callers behind a proxy or a Unix socket have no address: without keys they could not be told from our own user."""
    named = {
        "uds": options.uds is not None,
        "proxy": bool(options.proxies),
        "root_path": bool(options.root_path),
        "public_url": options.public_url is not None,
        "$FORWARDED_ALLOW_IPS": bool(os.environ.get("FORWARDED_ALLOW_IPS")),
    }
    for name, given in named.items():
        if given and not options.require_key:
            raise ConfigError(f"{name}: a proxy speaks for callers that cannot be told apart without keys; add --require-key")
    if options.uds is not None and options.tls_cert is not None:
        raise ConfigError("uds: a Unix socket has no TLS here; let the proxy in front of it speak TLS")
    for proxy in options.proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError:
            raise ConfigError(
                f"proxy: {proxy!r} is not an address or a network; use for example 10.0.0.7 or 10.0.0.0/24"
            ) from None


def _protocol(options: ServeOptions) -> Any:
    """Our protocol, which has the limits."""
    try:
        from hawser.api.protocol import Protocol  # noqa: PLC0415  # only a server needs it
    except ModuleNotFoundError as error:
        raise MissingExtra(f"serve: it needs the package 'httptools'; {install('server')}") from error
    limits = ConnectionLimits(total=room(options.connections), per_address=options.per_address)
    return partial(Protocol, Connections(limits, options.proxies))


def _where(options: ServeOptions, listener: socket.socket) -> str:
    if options.uds is not None:
        return f"unix:{options.uds}"
    host, port = listener.getsockname()[:2]
    return f"{'https' if options.tls_cert else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _listening(options: ServeOptions) -> socket.socket:
    if options.uds is not None:
        return _listening_on_a_file(Path(options.uds))
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, options.port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(f"host, port: cannot listen on {options.host}:{options.port}: {error.strerror}") from error


def _listening_on_a_file(path: Path) -> socket.socket:
    with socket.socket(socket.AF_UNIX) as other:
        if path.is_socket() and other.connect_ex(str(path)) == 0:
            raise ConfigError(f"uds: another process listens on {str(path)!r}; choose another path")
    listener = socket.socket(socket.AF_UNIX)
    try:
        if path.is_socket():
            # What a process that was killed left behind.
            path.unlink()
        before = os.umask(0o117)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ConfigError(f"uds: cannot listen on {str(path)!r}: {error.strerror or error}") from error
    return listener
