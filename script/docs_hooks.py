"""Hooks of MkDocs: pages that are made from files outside of docs/, and from the command line itself."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]

MADE = {"README.md": "start.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Files of the repository, and the pages that they become."""


def on_config(config: Any) -> Any:
    """The version at the foot of each page; the decisions, so that a new one need not be named twice."""
    config.copyright = f"Hawser {version('hawser-jobs')}"
    adrs = sorted(path.name for path in (ROOT / "docs" / "adr").glob("*.md"))
    for section in config.nav:
        if "Decisions" in section:
            section["Decisions"] = [f"adr/{name}" for name in sorted(adrs, key=lambda name: (name != "README.md", name))]
    return config


def on_files(files: Files, config: Any) -> Files:
    for source, page in MADE.items():
        files.append(File.generated(config, page, content=_moved((ROOT / source).read_text(encoding="utf-8"))))
    files.append(File.generated(config, "reference/cli.md", content=_command_line()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links out of docs/ lead to the page that was made of their file."""
    depth = page.file.src_uri.count("/")
    for source, made in MADE.items():
        markdown = markdown.replace(f"]({'../' * (depth + 1)}{source}", f"]({'../' * depth}{made}")
    return markdown


def _moved(text: str) -> str:
    """A file of the root as a page of docs/."""
    text = re.sub(r"\]\(docs/", "](", text)
    for source, made in MADE.items():
        text = text.replace(f"]({source}", f"]({made}")
    # What is no page, such as LICENSE, is only named.
    return re.sub(r"\[([^\]]+)\]\((?!https?:)(?![^)]*\.md)[^)#]+\)", r"\1", text)


def _command_line() -> str:
    from hawser.cli.program import hawser  # noqa: PLC0415  # MkDocs loads this file before it is needed

    parts = ["# Command line\n\nWhat `--help` says of each command.\n"]
    parts += _commands(hawser, click.Context(hawser, info_name="hawser"))
    return "\n".join(parts)


def _commands(group: click.Group, context: click.Context) -> list[str]:
    parts = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        parts.append(f"## {inner.command_path}\n\n```text\n{command.get_help(inner)}\n```\n")
        if isinstance(command, click.Group):
            parts += [part.replace("\n## ", "\n### ", 1) for part in _commands(command, inner)]
    return parts
