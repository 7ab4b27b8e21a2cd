"""The functions of the database, from the files in `functions/`, one file per subject.

`migrate` makes or replaces them when it finds others: a changed function is no migration. Workers of the release before call
these functions meanwhile, by name and types of arguments. A function with other arguments is another function to PostgreSQL, and
the old one stays. `create or replace` cannot rename an argument. A function whose answer has other columns gets another name:
workers of the release before read theirs by place, and the old one stays, too. `[[given]]` and the like are the columns of a job,
see `stores/columns.py`.
"""

from __future__ import annotations

import hashlib
import pkgutil
from typing import Final, NamedTuple

from hawser.stores.columns import GIVEN, expand

REVISION: Final = 25
"""To be raised with every change of a file in `functions/`. A column needs no raise: `functions` counts the columns in."""

FILES: Final = (
    *("time", "keys", "enqueue", "schedules", "dead_groups", "limits", "group_limits"),
    *("steps", "breakers", "group_turns", "turn_rounds", "turns", "dependencies", "batches", "events"),
)
"""In the order in which they are run: a function in SQL is checked when it is made, so what it calls comes before it."""


class Functions(NamedTuple):
    """The database's functions, as the files have them."""

    revision: int
    """It only ever grows: a database that a newer Hawser has changed keeps the newer functions."""
    digest: str
    script: str

    def are_newer_than(self, written: str | None) -> bool:
        """Whether to replace what `written` says is there. A newer Hawser's functions stay."""
        if written is None:
            return True
        revision, _, digest = written.partition(" ")
        return int(revision) < self.revision or (int(revision) == self.revision and digest != self.digest)


def functions() -> Functions:
    """The functions of this version."""
    script = expand("\n".join(_text(name) for name in FILES))
    return Functions(REVISION + len(GIVEN), hashlib.sha256(script.encode()).hexdigest()[:16], script)


def _text(name: str) -> str:
    data = pkgutil.get_data("hawser.stores.postgres", f"functions/{name}.sql")
    assert data is not None
    return data.decode()
