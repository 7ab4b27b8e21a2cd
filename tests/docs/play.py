"""Runs the Python snippets of one document, in order, in one namespace: python -m tests.docs.play DOCUMENT, in an empty folder.

A snippet that begins with a file's name is written to that file and imported instead, so that later ones may import it, too.
With the line of a snippet behind the document only that one is run, and the files are written alone.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from tests.docs.documents import Snippet, snippets


def play(path: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for snippet in snippets(path, "python"):
        if snippet.file is None:
            # The blank lines make the traceback point at the line of the document.
            code = compile("\n" * (snippet.line - 1) + snippet.text, str(path), "exec")
            exec(code, namespace)
        else:
            _write(snippet, snippet.file)


def play_alone(path: Path, line: int) -> None:
    for snippet in snippets(path, "python"):
        if snippet.file is not None:
            _write(snippet, snippet.file, use=False)
    [wanted] = [snippet for snippet in snippets(path, "python") if snippet.line == line]
    exec(compile("\n" * (line - 1) + wanted.text, str(path), "exec"), {"__name__": "__main__"})


def _write(snippet: Snippet, file: str, *, use: bool = True) -> None:
    Path(file).write_text(snippet.text, encoding="utf-8")
    if use and not file.startswith("test_"):
        importlib.import_module(file.removesuffix(".py"))


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    if len(sys.argv) > 2:
        play_alone(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        play(Path(sys.argv[1]))
