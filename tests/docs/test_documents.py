"""The documents are true: snippets run, commands exist, links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import hawser
from hawser.cli.group import Listing
from hawser.cli.program import hawser as program
from tests.docs.documents import DOCUMENTS, ROOT, Snippet, anchors, commands, links, name, snippets
from tests.repetition import LONG

WITH_PYTHON = [path for path in DOCUMENTS if snippets(path, "python")]
TEST_MODULES = [
    (path, snippet) for path in WITH_PYTHON for snippet in snippets(path, "python") if (snippet.file or "").startswith("test_")
]
COMMANDS = [(path, line, text) for path in DOCUMENTS for line, text in commands(path)]

FOREIGN = {".", "createdb", "curl", "export", "node", "pip", "pytest", "python", "rm", "touch", "uvicorn"}
"""Commands in snippets that are not ours."""


def environ() -> dict[str, str]:
    """As a reader would have it: none of our own variables, warnings as errors."""
    own = {variable: value for variable, value in os.environ.items() if not variable.startswith("HAWSER_")}
    return {**own, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


def test_all_documents_are_found():
    assert {"README.md", "CONTRIBUTING.md", "docs/guarantees.md", "docs/guides/testing.md"} <= set(map(name, DOCUMENTS))


@pytest.mark.parametrize("path", WITH_PYTHON, ids=name)
def test_the_python_in_a_document_runs(path: Path, tmp_path: Path):
    play(tmp_path, path)


@pytest.mark.parametrize("line", [snippet.line for snippet in snippets(ROOT / "README.md", "python") if snippet.file is None])
def test_a_snippet_of_the_readme_runs_alone_in_a_new_folder(line: int, tmp_path: Path):
    play(tmp_path, ROOT / "README.md", line)


def play(tmp_path: Path, path: Path, *line: int) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.docs.play", str(path), *map(str, line)],
        cwd=tmp_path,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]


@pytest.mark.parametrize(("path", "snippet"), TEST_MODULES, ids=[str(snippet.file) for _, snippet in TEST_MODULES])
def test_a_test_module_in_a_document_passes(path: Path, snippet: Snippet, tmp_path: Path):
    """Beside the other files of its document. Of the contract of a reader's own store, a long run plays the whole."""
    for other in snippets(path, "python"):
        if other.file is not None:
            (tmp_path / other.file).write_text(other.text, encoding="utf-8")
    settings = ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function", "-p", "no:cacheprovider"]
    chosen = ["-k", "settle or claim"] if snippet.file == "test_my_store.py" and not LONG else []
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", *settings, *chosen, str(snippet.file)],
        cwd=tmp_path,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
    assert re.search(r"[1-9]\d* passed", run.stdout)


@pytest.mark.parametrize(("path", "line", "text"), COMMANDS, ids=[f"{name(path)}:{line}" for path, line, _ in COMMANDS])
def test_a_command_in_a_document_exists(path: Path, line: int, text: str):
    words = shlex.split(text)
    while re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    if words[0].startswith("script/"):
        assert os.access(ROOT / words[0], os.X_OK), f"there is no {words[0]}"
    elif words[0] == "hawser":
        _check(words[1:])
    else:
        assert words[0] in FOREIGN


def _check(words: list[str]) -> None:
    """The command is there, answers to --help, and knows the options that the document gives it."""
    command, path = _resolved(words)
    answer = CliRunner().invoke(program, [*path, "--help"])
    assert answer.exit_code == 0, answer.output
    known = {opt for param in command.params if isinstance(param, click.Option) for opt in (*param.opts, *param.secondary_opts)}
    given = {word.partition("=")[0] for word in words if word.startswith("-")}
    assert given - known - {"--help", "-h"} == set()


def _resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    command: click.Command = program
    path: list[str] = []
    for word in words:
        if not isinstance(command, click.Group) or word.startswith("-"):
            break
        found = command.get_command(click.Context(command), word)
        assert found is not None, f"no command {word!r} in {path}"
        command = found
        path.append(word)
    if isinstance(command, Listing):
        listing = command.get_command(click.Context(command), "ls")
        assert listing is not None
        return listing, [*path, "ls"]
    return command, path


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_the_commands_in_the_text_exist(path: Path):
    """`hawser jobs show ID` within a sentence: the words up to the first that is no command's name."""
    for quoted in re.findall(r"`hawser ([a-z][^`\n]*)`", path.read_text(encoding="utf-8")):
        words = quoted.split(" ")
        has_commands = isinstance(program.get_command(click.Context(program), words[0]), click.Group)
        is_name = len(words) > 1 and re.fullmatch(r"[a-z][a-z-]*", words[1])
        _resolved(words[:2] if has_commands and is_name else words[:1])


def test_nobody_is_told_to_install_another_projects_package():
    """The name `hawser` on PyPI is not ours; the distribution is called hawser-jobs."""
    files = [
        *DOCUMENTS,
        *(path for place in ("src", "deploy", "examples") for path in (ROOT / place).rglob("*") if path.is_file()),
    ]
    files = [path for path in files if path.suffix != ".pyc"]
    wrong = re.compile(rb"pip install[^\n]*[ '\"]hawser(?!-jobs)\b")
    assert [name(path) for path in files if wrong.search(path.read_bytes())] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path: Path):
    for link in links(path):
        place, _, anchor = link.partition("#")
        target = (path.parent / place).resolve() if place else path
        assert target.exists(), f"{link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{link} leads out of the repository"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_files_in_the_text_exist(path: Path):
    """`src/hawser/store.py` and the like, written from the root of the repository."""
    for file in re.findall(r"`((?:src|tests|docs|script)/[\w./-]+)`", path.read_text(encoding="utf-8")):
        assert "NAME" in file or (ROOT / file).exists(), f"there is no {file}"


def test_the_files_of_the_map_for_changes_exist():
    """The table of CONTRIBUTING names them from src/hawser, or from the root of the repository."""
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where to change what")[2].partition("\n## ")[0]
    files = re.findall(r"`([\w./-]+(?:/|\.(?:py|sql|lua|tsx|md)))`", table)
    assert len(files) > 20
    assert [file for file in files if not (ROOT / file).exists() and not (ROOT / "src" / "hawser" / file).exists()] == []


def test_no_cell_of_the_findings_is_longer_than_a_line():
    """What does not fit goes into a note below the table."""
    rows = [line for line in (ROOT / "docs" / "findings.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(rows) > 50
    assert [cell for row in rows for cell in row.split("|") if len(cell) > 130] == []


def test_the_changelog_has_this_version():
    assert re.search(rf"^## .*\b{re.escape(hawser.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
