"""`/ui/`: the dashboard, from the files that the build left in `hawser/dashboard`. It is a client of this API, nothing else."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from collections.abc import Mapping
from functools import cached_property
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from hawser.api.encoding import takes_gzip

PAGE_PREFIX: Final = "/ui/"

POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
"""Scripts and styles only from our own files, no frames, no other host: markup in a payload stays text."""

_SAFE: Final = (
    (b"content-security-policy", POLICY),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"referrer-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
)
_CACHED_FOREVER: Final = (b"cache-control", b"public, max-age=31536000, immutable")
_CACHED_IF_CHECKED: Final = (b"cache-control", b"no-cache")
_HTML: Final = b"text/html; charset=utf-8"
_PLAIN_TEXT: Final = b"text/plain; charset=utf-8"

_UNBUILT: Final = "the package was not built; install it with pip"


class Sent(NamedTuple):
    """An answer in bytes."""

    status: int
    media_type: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes = b""


class _Asset(NamedTuple):
    media_type: bytes
    body: bytes
    packed: bytes


class _Files(NamedTuple):
    html: bytes
    assets: Mapping[str, _Asset]
    missing: str | None
    """Why there are none."""


class Dashboard:
    """The built files, some 200 kB in memory from the first request for one on; or the reason why there are none."""

    def __init__(self, folder: Traversable | None = None) -> None:
        self._folder = folder

    @cached_property
    def _files(self) -> _Files:
        folder = self._folder or files("hawser") / "dashboard"
        index, reason = folder / "index.html", folder / "missing.txt"
        if index.is_file():
            return _Files(index.read_bytes(), {file.name: _asset(file) for file in (folder / "assets").iterdir()}, None)
        return _Files(b"", {}, reason.read_text().strip() if reason.is_file() else _UNBUILT)

    @property
    def missing(self) -> str | None:
        """Why there is no dashboard; None when there is one."""
        return self._files.missing

    def answer(self, path: str, headers: Mapping[bytes, bytes]) -> Sent | None:
        """What a GET of this path gets; None when it is not a path of the dashboard."""
        if path == PAGE_PREFIX[:-1] or (path == "/" and b"text/html" in headers.get(b"accept", b"")):
            # Relative: a proxy may have put a prefix in front.
            return Sent(307, _PLAIN_TEXT, (*_SAFE, _CACHED_IF_CHECKED, (b"location", b"./ui/")))
        if not path.startswith(PAGE_PREFIX):
            return None
        rest = path.removeprefix(PAGE_PREFIX)
        if rest.startswith("assets/"):
            return self._sent_asset(rest.removeprefix("assets/"), headers)
        if self.missing is not None:
            return Sent(503, _HTML, (*_SAFE, _CACHED_IF_CHECKED), _missing_page(self.missing))
        return self._sent_index(rest, headers)

    def _sent_index(self, rest: str, headers: Mapping[bytes, bytes]) -> Sent:
        # The way to the assets follows from the depth of this path, so no prefix has to be known.
        body = self._files.html.replace(b"%BASE%", b"../" * rest.count("/") or b"./")
        tag = b'"%s"' % hashlib.blake2b(body, digest_size=16).hexdigest().encode()
        if tag in headers.get(b"if-none-match", b""):
            return Sent(304, _HTML, (*_SAFE, _CACHED_IF_CHECKED, (b"etag", tag)))
        return Sent(200, _HTML, (*_SAFE, _CACHED_IF_CHECKED, (b"etag", tag)), body)

    def _sent_asset(self, name: str, headers: Mapping[bytes, bytes]) -> Sent:
        asset = self._files.assets.get(name)
        if asset is None:
            # Not the index: a browser would take it for a script and show an empty page.
            return Sent(404, _PLAIN_TEXT, (*_SAFE, _CACHED_IF_CHECKED), b"there is no such file; load the page again\n")
        kept = (*_SAFE, _CACHED_FOREVER, (b"vary", b"accept-encoding"))
        if takes_gzip(headers.get(b"accept-encoding", b"")):
            return Sent(200, asset.media_type, (*kept, (b"content-encoding", b"gzip")), asset.packed)
        return Sent(200, asset.media_type, kept, asset.body)


def _asset(file: Traversable) -> _Asset:
    body = file.read_bytes()
    media_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return _Asset(media_type.encode(), body, gzip.compress(body, 9, mtime=0))


def _missing_page(reason: str) -> bytes:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Hawser</title></head><body>'
        "<h1>This installation has no dashboard</h1>"
        f"<p>Reason: {escape(reason)}</p>"
        "<p>The API works without it, and so does <code>hawser top</code>. To get the dashboard, let the build reach the npm "
        "registry (a proxy or a mirror can be set in <code>~/.npmrc</code>) and install Hawser again; "
        "<code>HAWSER_PAGE=require pip install …</code> fails with the full reason.</p></body></html>"
    ).encode()
