"""Lua from files: one script per method of the seam, put together with the shared parts that its line `-- uses:` names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, get_args

from hawser.stores.redis.address import LaneKind

SHARED_FOLDER: Final = "shared/"
FRESH: Final = "fresh_lists"
"""The shared part in whose place scripts for streams have `fresh_streams`."""

_USES: Final = re.compile(r"^-- uses:(.*)$", re.MULTILINE)
_LUA_COMMENT: Final = re.compile(r"^ *--.*\n", re.MULTILINE)

ADDS_JOBS: Final = frozenset({"enqueue", "fire", "open_batch", "replace"})
"""Scripts that add jobs for a caller. All others run on a server that is unsafe or full, so that what is there can drain."""


class Script(NamedTuple):
    """A script as the server knows it."""

    text: str
    sha: str


def load(texts: Mapping[str, str], lanes: LaneKind) -> Mapping[str, Script]:
    """The scripts by name, for a store that keeps its fresh lanes in lists or in streams."""
    names = (name for name in texts if not name.startswith(SHARED_FOLDER))
    return MappingProxyType({name: _assembled(name, texts, lanes) for name in names})


def _assembled(name: str, texts: Mapping[str, str], lanes: LaneKind) -> Script:
    """A script with the shared parts in front of it."""
    uses = _USES.search(texts[name])
    assert uses is not None, f"the script {name} does not say what it uses"
    named = (f"fresh_{lanes}" if part == FRESH else part for part in ("start", *uses[1].split()))
    flags = "" if name in ADDS_JOBS else " flags=allow-oom"
    whole = f"#!lua{flags}\n" + _LUA_COMMENT.sub("", "".join([*(texts[SHARED_FOLDER + part] for part in named), texts[name]]))
    # A script's name at the server is its SHA-1; nothing rests on its strength.
    return Script(whole, hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest())


def read() -> Mapping[str, str]:
    """The texts of scripts and shared parts by their paths, without the ending."""
    folder = Path(__file__).parent / "lua"
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.lua"))
    }


def load_all(texts: Mapping[str, str]) -> Mapping[LaneKind, Mapping[str, Script]]:
    """The scripts for each kind of lanes."""
    return MappingProxyType({lanes: load(texts, lanes) for lanes in get_args(LaneKind)})


SCRIPTS: Final = load_all(read())
