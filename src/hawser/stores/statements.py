"""SQL from files: a statement begins with `-- name: NAME`, followed by one sentence about it.

Lists of a job's columns are written out, see `columns`.
"""

from __future__ import annotations

import pkgutil
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from hawser.stores.columns import expand

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load(package: str, *names: str) -> Mapping[str, str]:
    """The statements of a package's `.sql` files, by name."""
    statements: dict[str, str] = {}
    for name in names:
        # Not importlib.resources: it takes zipfile and more along, 0.8 MB in every process.
        text = pkgutil.get_data(package, name)
        assert text is not None
        parts = _NAME.split(text.decode())
        for title, statement in zip(parts[1::2], parts[2::2], strict=True):
            assert title not in statements, f"two statements are called {title}"
            statements[title] = expand(_COMMENT.sub("", statement).strip())
    return MappingProxyType(statements)
