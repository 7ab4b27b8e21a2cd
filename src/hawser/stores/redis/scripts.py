"""Lua from files: one script per method of the seam, put together with the shared parts that its line `-- uses:` names."""

from __future__ import annotations

import hashlib
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

PACKAGE: Final = "hawser.stores.redis"

_USES: Final = re.compile(r"^-- uses:(.*)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^ *--.*\n", re.MULTILINE)

REFUSED_WHEN_FULL: Final = frozenset({"enqueue", "fire", "replace"})
"""Scripts that add jobs for a caller. All others run on a server whose memory is full, so that what is there can drain."""


class Script(NamedTuple):
    """A script as the server knows it."""

    text: str
    sha: str


def load(package: str = PACKAGE, *, fresh: str = "fresh_lists") -> Mapping[str, Script]:
    """The scripts by name. `fresh` is the shared part that keeps fresh lanes."""
    folder = Path(__file__).parent / "lua"
    names = sorted(path.stem for path in folder.glob("*.lua"))
    return MappingProxyType({name: assemble(name, _text(package, name), package, fresh) for name in names})


def assemble(name: str, text: str, package: str = PACKAGE, fresh: str = "fresh_lists") -> Script:
    """A script with the shared parts in front of it."""
    uses = _USES.search(text)
    assert uses is not None, f"the script {name} does not say what it uses"
    parts = [_text(package, f"shared/{fresh if part == 'fresh_lists' else part}") for part in ("start", *uses[1].split())]
    flags = "" if name in REFUSED_WHEN_FULL else " flags=allow-oom"
    whole = f"#!lua{flags}\n" + _COMMENT.sub("", "".join([*parts, text]))
    # A script's name at the server is its SHA-1; nothing rests on its strength.
    return Script(whole, hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest())


def _text(package: str, name: str) -> str:
    text = pkgutil.get_data(package, f"lua/{name}.lua")
    assert text is not None
    return text.decode()


LISTS: Final = load()
