"""What a name or a free text may be: of queues, tasks and schedules, of keys and tags."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")


def name_fault(name: object) -> str | None:
    """What is wrong with the name of a queue, a task or a schedule, or None."""
    if not isinstance(name, str):
        return f"{name!r} is not a text"
    if not name:
        return "the name is empty; use letters, digits, '_', '.' and '-'"
    if _NAME.fullmatch(name) is None:
        return f"{name[:140]!r} is not a name: use up to 128 letters, digits, '_', '.' and '-', not starting with '.' or '-'"
    return None


def text_fault(text: object, longest: int) -> str | None:
    """What is wrong with a free text such as a key or a tag, or None."""
    if not isinstance(text, str):
        return f"{text!r} is not a text"
    if not 1 <= len(text) <= longest:
        return f"a text of {len(text)} characters; use 1 to {longest}"
    if "\0" in text:
        return "the text has a NUL character; remove it"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "the text has a lone surrogate; it is not valid Unicode"
    return None
