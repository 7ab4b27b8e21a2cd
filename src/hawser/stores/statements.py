"""SQL from files: a statement begins with `-- name: NAME`, followed by one sentence about it."""

from __future__ import annotations

import re
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load(package: str, *names: str) -> Mapping[str, str]:
    """The statements of a package's `.sql` files, by name."""
    statements: dict[str, str] = {}
    for name in names:
        parts = _NAME.split((files(package) / name).read_text(encoding="utf-8"))
        for title, text in zip(parts[1::2], parts[2::2], strict=True):
            assert title not in statements, f"two statements are called {title}"
            statements[title] = _COMMENT.sub("", text).strip()
    return MappingProxyType(statements)
