"""`hawser serve`: the HTTP API of an app."""

from __future__ import annotations

from typing import Any, Literal

import click

from hawser.api.serve import ServeOptions
from hawser.api.serve import serve as run
from hawser.cli.group import Command
from hawser.client.app_loader import find_app
from hawser.job import MAX_ATTEMPTS
from hawser.telemetry.logs import LogOptions, configure

_DEFAULT_SERVE = ServeOptions()


@click.command(cls=Command, context_settings={"auto_envvar_prefix": "HAWSER_SERVE"})
@click.argument("app")
@click.option(
    "--host", default=_DEFAULT_SERVE.host, show_default=True, help="Where to listen; beyond this machine only with keys."
)
@click.option("--port", type=click.IntRange(0, 65535), default=_DEFAULT_SERVE.port, show_default=True, help="0 takes a free one.")
@click.option(
    "--uds", type=click.Path(dir_okay=False), metavar="PATH", help="Listen on a Unix socket instead; with --require-key."
)
@click.option("--require-key", is_flag=True, help="Ask every caller for a key: for use behind a proxy.")
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Believe the X-Forwarded-For of this proxy, or network of proxies; may be repeated; with --require-key.",
)
@click.option("--root-path", default="", metavar="PREFIX", help="What a proxy cuts off the path; with --require-key.")
@click.option(
    "--public-url",
    metavar="URL",
    help="Where browsers find this server behind its proxy: for links, cookies and the origin of pages; with --require-key.",
)
@click.option(
    "--max-attempts",
    type=click.IntRange(1, MAX_ATTEMPTS),
    default=_DEFAULT_SERVE.max_attempts,
    show_default=True,
    help="Attempts that a caller may ask for.",
)
@click.option(
    "--max-waiting",
    type=click.IntRange(1),
    default=_DEFAULT_SERVE.max_waiting,
    show_default=True,
    help="Jobs that may wait in a queue without a limit of its own.",
)
@click.option(
    "--connections",
    type=click.IntRange(1),
    default=_DEFAULT_SERVE.connections,
    show_default=True,
    help="Most connections at once.",
)
@click.option(
    "--per-address",
    type=click.IntRange(1),
    default=_DEFAULT_SERVE.per_address,
    show_default=True,
    help="Most connections from one address; this machine and proxies that are named are exempt.",
)
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False), help="Certificate chain of this server, PEM.")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="Its private key, PEM.")
@click.option(
    "--tls-client-ca", type=click.Path(exists=True, dir_okay=False), help="Ask clients for a certificate of this authority."
)
@click.option(
    "--drain-timeout",
    type=click.FloatRange(0, 3600),
    default=_DEFAULT_SERVE.drain_timeout,
    show_default=True,
    help="Seconds that requests have to finish after SIGTERM.",
)
@click.option("--access-log", is_flag=True, help="Log a line for every request: method, route, status, time, key, address.")
@click.option("--store", metavar="URL", help="Another store than the app's own.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(["plain", "json"]), default="plain", show_default=True)
def serve(
    app: str,
    store: str | None,
    log_level: Literal["debug", "info", "warning", "error"],
    log_format: Literal["plain", "json"],
    **options: Any,
) -> None:
    """Serve the HTTP API of APP, which is module:attribute or path/to/file.py:attribute.

    On 127.0.0.1 your own user needs no key, nor does a caller that sends the token printed at the start. Any other host is
    refused until the store has a key, and asks every caller for one. GET /openapi.json describes the API. SIGTERM or Ctrl-C
    lets requests under way finish.

    Every option may stand in the environment as HAWSER_SERVE_….
    """
    configure(LogOptions(level=log_level, format=log_format))
    found = find_app(app)
    if store is not None:
        found.use_store(store)
    run(found, ServeOptions(**options))
