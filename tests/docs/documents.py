"""The documents, and what can be taken out of them: snippets, links, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w.]+\.py)\n")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


class Snippet(NamedTuple):
    """A fenced block."""

    language: str
    text: str
    line: int
    """Of its first line of code, from 1."""

    @property
    def file(self) -> str | None:
        """The name in its first line, `# tasks.py`, when it is a file to be written."""
        found = _FILE.match(self.text)
        return found[1] if found else None


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def snippets(path: Path, language: str) -> list[Snippet]:
    text = path.read_text(encoding="utf-8")
    found = [Snippet(block[1], block[2], text.count("\n", 0, block.start()) + 2) for block in _FENCE.finditer(text)]
    return [snippet for snippet in found if snippet.language == language]


def commands(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of the shell snippets, with their line numbers."""
    for snippet in snippets(path, "sh"):
        for offset, line in enumerate(snippet.text.splitlines()):
            if line.strip():
                yield snippet.line + offset, line.strip()


def prose(path: Path) -> str:
    """The text without fenced blocks and without code."""
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", path.read_text(encoding="utf-8")))


def links(path: Path) -> list[str]:
    """The links that lead to other places in the repository."""
    return [link for link in _LINK.findall(prose(path)) if not re.match(r"[a-z]+:", link)]


def anchors(path: Path) -> set[str]:
    """What a link may have behind its #: the headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
