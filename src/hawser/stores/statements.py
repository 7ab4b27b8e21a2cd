"""SQL from files: a statement begins with `-- name: NAME`, followed by one sentence about it.

What several statements have in common begins with `-- part: NAME`, and stands as `[[part NAME]]` in those behind it. Lists of a
job's columns are written out, see `columns`.
"""

from __future__ import annotations

import pkgutil
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from hawser.stores.columns import expand

if TYPE_CHECKING:
    from collections.abc import Mapping

_SQL_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_NAME_LINE = re.compile(r"^-- (name|part): (\w+)$", re.MULTILINE)
_PART_MARK = re.compile(r"\[\[part (\w+)\]\]")


def load(package: str, *names: str) -> Mapping[str, str]:
    """The statements of a package's `.sql` files, by name."""
    statements: dict[str, str] = {}
    parts: dict[str, str] = {}
    for name in names:
        # Not importlib.resources: it takes zipfile and more along, 0.8 MB in every process.
        text = pkgutil.get_data(package, name)
        assert text is not None
        sections = _NAME_LINE.split(text.decode())
        for kind, title, section in zip(sections[1::3], sections[2::3], sections[3::3], strict=True):
            found = statements if kind == "name" else parts
            assert title not in found, f"two statements are called {title}"
            found[title] = expand(_PART_MARK.sub(lambda part: parts[part[1]], _SQL_COMMENT.sub("", section).strip()))
    return MappingProxyType(statements)
