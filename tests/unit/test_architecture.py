"""The shape of the code: which way imports point, what modules are called, and what code and documents say of each other."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

import hawser
from hawser import State
from hawser.stores.postgres import server as postgres_server
from hawser.stores.redis.scripts import SCRIPTS as REDIS_SCRIPTS
from hawser.stores.sqlite import tx as sqlite_tx
from hawser.testing import contract

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hawser"

LAYERS = (
    ("cli",),
    ("api", "contrib", "demo", "lab", "testing"),
    ("hawser", "app", "queue"),
    ("supervisor",),
    ("worker", "upkeep"),
    (
        "client",
        "config",
        "context",
        "cycle",
        "gathering",
        "hooks",
        "ledger",
        "output",
        "own_transaction",
        "payload",
        "run_control",
        "settling",
        "task",
        "task_options",
        "telemetry",
        "waiting",
    ),
    ("stores",),
    ("store",),
    (
        "backoff",
        "batch",
        "batcher",
        "breaker",
        "clock",
        "decision",
        "errors",
        "fingerprint",
        "handle",
        "ids",
        "indexed",
        "job",
        "job_time",
        "json_value",
        "limit",
        "name",
        "outcome",
        "policy",
        "schedule",
        "upstream",
    ),
)
"""Modules and packages of `hawser`, highest first; `hawser` is the package's own `__init__`. An import goes to the same layer or
a lower one, and never in a circle. `docs/architecture.md` draws the same."""

UPWARD = {
    ("api.openapi", "hawser"): "the version, for the document",
    ("app", "api.options"): "says what `asgi` takes",
    ("app", "api.server"): "makes the API of an app, for whoever asks for it",
    ("client.app_loader", "app"): "loads an app by its name, for whoever was given only the name",
    ("worker.child", "app"): "says what it was given; the app brings the worker its tasks",
    ("worker.isolate", "app"): "as above",
    ("supervisor.start", "app"): "as above",
    ("supervisor.embedded", "app"): "as above",
    ("worker.handshake", "app"): "as above",
    ("worker.worker", "app"): "as above",
    ("worker.unserved", "app"): "as above",
    ("supervisor.maintenance", "hawser"): "the version, for the list of workers",
}
"""Imports that point up, with the reason. All are made late or for type checkers only: none when the module is imported."""

SAME_NAME = {
    "Command": "of our command line, and the name that Django looks for",
    "EmitVisit": "as of Visit",
    "Fault": "public in `hawser.testing`, and in the OpenAPI document",
    "Visit": "the protocol, and what keeps it in each store",
}
"""Names of classes that stand in more than one part, with the reason. Stores may have parts of one name: they do the same."""

LONGEST = 350

MANY_PARAMETERS = {
    "api.route.Route": "a row of the table of routes, written with keywords",
    "lab.chaos.processes.WorkerUnit": "what a supervised worker is started with, written with keywords",
}
"""Classes whose constructor has more than MOST_PARAMETERS, with the reason."""

MOST_PARAMETERS = 8

WRONG_NAMES = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}

CLOCK_READERS = {
    "clock": "it is the clock",
    "ids": "a UUIDv7 begins with the time; no decision rests on it",
    "cli.when": "`--since 1h` is meant from where the person sits",
    "cli.format": "shows how long ago something was",
}
"""Modules that may read the wall clock. Everybody else gets the time from a `Clock`, or measures with a monotonic one."""

CLOCK_CALLS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}


class Import(NamedTuple):
    """One module uses another."""

    user: str
    used: str
    kind: str
    """`top` when it happens as the module is imported, `late` inside of a function, `typing` for type checkers only."""


def modules() -> dict[str, Path]:
    """Every module by its name within the package; the package itself is `hawser`, a package under it has its bare name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name or "hawser"] = path
    return found


MODULES = modules()
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def imports(name: str) -> Iterator[Import]:
    yield from (Import(name, used, kind) for used, kind in _imports(TREES[name], "top"))


def _imports(node: ast.AST, kind: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                yield from ((_within(alias.name), kind) for alias in names if _is_ours(alias.name))
            case ast.ImportFrom(module=module, names=names, level=level):
                assert not level, "imports are absolute"
                if module is not None and _is_ours(module):
                    for alias in names:
                        # `from hawser.cli import show` uses the module show, `from hawser.job import Job` the module job.
                        full = _within(f"{module}.{alias.name}")
                        yield full if full in MODULES else _within(module), kind
            case ast.If(test=test) if "TYPE_CHECKING" in ast.unparse(test):
                yield from _imports(child, "typing")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _imports(child, "late")
            case _:
                yield from _imports(child, kind)


def _is_ours(module: str) -> bool:
    return module == "hawser" or module.startswith("hawser.")


def _within(module: str) -> str:
    return module if module == "hawser" else module.removeprefix("hawser.")


def part(module: str) -> str:
    """What a module belongs to: `worker` of `worker.board`."""
    return module.partition(".")[0]


def layer(module: str) -> int:
    return next(number for number, parts in enumerate(LAYERS) if part(module) in parts)


IMPORTS = [found for name in MODULES for found in imports(name)]


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """The classes of every module that other modules may name."""
    for name, tree in TREES.items():
        yield from ((name, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))


def test_a_class_name_has_one_meaning():
    places: dict[str, set[str]] = {}
    for module, node in classes():
        in_a_store = re.match(r"stores\.(memory|sqlite|postgres|redis)\.", module)
        places.setdefault(node.name, set()).add("a store" if in_a_store else module)
    shared = {name for name, modules in places.items() if len(modules) > 1}
    assert shared - SAME_NAME.keys() == set(), "one name, one meaning: rename one of them, or give the reason in SAME_NAME"
    assert SAME_NAME.keys() - shared == set(), "no longer shared"


def test_modules_are_short():
    long = {name for name, path in MODULES.items() if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST}
    assert long == set(), f"more than {LONGEST} lines: split them by role"


def test_constructors_have_few_parameters():
    many = set()
    for module, node in classes():
        for function in node.body:
            if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                given = function.args
                if len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1 > MOST_PARAMETERS:
                    many.add(f"{module}.{node.name}")
    assert many - MANY_PARAMETERS.keys() == set(), f"more than {MOST_PARAMETERS} parameters: part the class, or give the reason"
    assert MANY_PARAMETERS.keys() - many == set(), "no longer many"


def test_every_module_has_one_layer():
    named = [name for parts in LAYERS for name in parts]
    assert sorted(named) == sorted({part(module) for module in MODULES})


def test_imports_go_down():
    up = [
        found
        for found in IMPORTS
        if part(found.user) != part(found.used)
        and layer(found.used) < layer(found.user)
        and (found.user, found.used) not in UPWARD
    ]
    assert up == []


def test_imports_that_go_up_are_never_made_at_import():
    assert [found for found in IMPORTS if (found.user, found.used) in UPWARD and found.kind == "top"] == []


def test_no_exception_is_left_that_nobody_needs():
    assert {pair for pair in UPWARD if pair not in {(found.user, found.used) for found in IMPORTS}} == set()


def test_no_modules_import_each_other_in_a_circle():
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for found in IMPORTS:
        if found.kind == "top":
            graph[found.user].add(found.used)
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_no_parts_import_each_other_in_a_circle():
    graph: dict[str, set[str]] = {part(name): set() for name in MODULES}
    for found in IMPORTS:
        if part(found.user) != part(found.used) and (found.user, found.used) not in UPWARD:
            graph[part(found.user)].add(part(found.used))
    graphlib.TopologicalSorter(graph).prepare()


def test_stores_know_nothing_of_those_who_use_them():
    below = {name for parts in LAYERS[LAYERS.index(("store",)) :] for name in parts}
    strangers = [found for found in IMPORTS if part(found.user) == "stores" and part(found.used) not in {"stores", *below}]
    assert strangers == []


def test_stores_know_nothing_of_each_other():
    folders = {path.parent.name for path in (SOURCE / "stores").glob("*/__init__.py")}
    assert {"memory", "sqlite"} <= folders

    def store(module: str) -> str:
        return next((name for name in folders if module.startswith(f"stores.{name}")), "")

    crossed = [found for found in IMPORTS if store(found.user) and store(found.used) not in ("", store(found.user))]
    assert crossed == []


def test_a_producer_pays_for_no_worker_no_store_and_no_command_line():
    heavy = ("click", "rich", "uvloop", "sqlite3", "hawser.cli", "hawser.worker.worker", "hawser.stores.sqlite", "hawser.testing")
    code = f"import hawser, sys; hawser.Hawser; print([name for name in {heavy!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_no_module_is_a_drawer():
    assert {name for name in MODULES if name.rpartition(".")[2] in WRONG_NAMES} == set()


def test_the_public_names_are_there_and_in_order():
    def order(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2), name

    assert hawser.__all__ == sorted(hawser.__all__, key=order)
    assert len(hawser.__all__) == len(set(hawser.__all__))
    assert [name for name in hawser.__all__ if not hasattr(hawser, name)] == []


def test_what_the_package_imports_is_public():
    """A type checker reads the imports, the interpreter imports what is asked for: both know the same names."""
    [checked] = [node for node in TREES["hawser"].body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    imported = {alias.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == hawser._WHERE
    assert set(imported) == set(hawser.__all__)


def test_the_modules_of_public_names_are_there_after_a_plain_import():
    code = "import hawser; print(hawser.errors.QueueFull is hawser.QueueFull, hawser.job.State.READY)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "ready"]


@pytest.mark.parametrize("name", MODULES)
def test_time_comes_from_the_clock(name: str):
    calls = {
        (node.func.value.id, node.func.attr)
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
    }
    reads = calls & CLOCK_CALLS
    assert not reads or name in CLOCK_READERS, "take a Clock, or say in CLOCK_READERS why not"


def test_no_module_may_read_the_clock_that_does_not():
    names = {name: ast.unparse(TREES[name]) for name in CLOCK_READERS}
    assert [name for name, text in names.items() if not re.search(r"\b(time\.time|datetime\.now)", text)] == []


def test_ids_are_made_in_one_place():
    foreign = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Import) and any(alias.name == "uuid" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "uuid")
    }
    assert foreign == set()


# SQL and Lua.


class Dialect(NamedTuple):
    """A store whose statements stand in `.sql` files."""

    store: str
    statements: Mapping[str, str]

    @property
    def trees(self) -> list[ast.Module]:
        return [tree for name, tree in TREES.items() if name.startswith(f"stores.{self.store}")]

    @property
    def files(self) -> list[Path]:
        """Files of statements; functions and migrations are run whole."""
        found = sorted((SOURCE / "stores" / self.store).glob("*.sql"))
        return [path for path in found if path.name != "functions.sql"]


DIALECTS = (Dialect("sqlite", sqlite_tx.SQL), Dialect("postgres", postgres_server.SQL))
per_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.store)

STATEMENT = re.compile(
    r"\s*(select|insert\s+into|update|delete\s+from|with|create|alter|drop|merge|truncate)\s+\S+.*(from|set|values|table|index|view|select)\b",
    re.IGNORECASE | re.DOTALL,
)
WRITTEN_IN_PYTHON = {
    "stores.postgres.history": "the tables of days, whose names are made; no name can be a parameter",
    "stores.postgres.index_building": "makes indexes of parts, whose names are found; no name can be a parameter",
    "stores.postgres.migrate": "asks which schema is there, before there is one",
    "stores.postgres.primary": "asks a server who it is, before it has a schema",
    "stores.postgres.search": "puts statements of the files together, for each of the indexes that a search may use",
    "stores.postgres.watch": "ends sessions at the server, which has nothing to do with the schema",
    "stores.sqlite.migrate": "asks which schema is there, before there is one",
}
"""Modules that may hold SQL of their own, with the reason."""


def used_statements(dialect: Dialect) -> Iterator[str]:
    """The names in `tx.sql["…"]` and the like."""
    for tree in dialect.trees:
        for node in ast.walk(tree):
            match node:
                case ast.Subscript(value=ast.Attribute(attr="sql" | "_sql"), slice=ast.Constant(value=str(name))):
                    yield name
                case ast.Subscript(value=ast.Name(id="SQL"), slice=ast.Constant(value=str(name))):
                    yield name


def texts(trees: Iterable[ast.Module]) -> set[str]:
    """Every text in this code: a statement or script may also be chosen by a name that is passed on."""
    return {
        node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


@per_dialect
def test_every_statement_that_is_used_exists(dialect):
    assert sorted(set(used_statements(dialect)) - set(dialect.statements)) == []
    chosen = {text for text in texts(dialect.trees) if re.fullmatch(r"find_\w+", text)}
    assert sorted(chosen - set(dialect.statements)) == []


@per_dialect
def test_every_statement_is_used(dialect):
    assert sorted(set(dialect.statements) - texts(dialect.trees)) == []


@per_dialect
def test_every_file_of_statements_is_read(dialect):
    named = [name for path in dialect.files for name in re.findall(r"^-- name: (\w+)$", path.read_text(), re.MULTILINE)]
    assert sorted(named) == sorted(dialect.statements)


@per_dialect
def test_every_statement_says_what_it_is_for(dialect):
    for path in dialect.files:
        for part_ in re.split(r"^-- name: ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            name, *lines = part_.splitlines()
            said = " ".join(line.removeprefix("-- ") for line in takewhile(lambda line: line.startswith("-- "), lines))
            assert re.fullmatch(r"[A-Z].*\.", said), f"{path.name}: {name} has no sentence above it"


def test_sqlite_has_no_numbered_placeholders():
    """`?1` with a sequence of values is deprecated since Python 3.12, and an error from 3.14 on."""
    assert [name for name, statement in sqlite_tx.SQL.items() if re.search(r"\?\d", statement)] == []


@per_dialect
def test_sql_stands_in_files(dialect):
    """Not in Python, where no one looks for it and f-strings are near."""
    found = [
        f"{name}:{node.lineno}: {node.value.strip()[:60]!r}"
        for name, tree in TREES.items()
        if name.startswith(f"stores.{dialect.store}") and name not in WRITTEN_IN_PYTHON
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not _is_docstring(node, tree)
        if STATEMENT.match(node.value)
    ]
    assert found == []


def _is_docstring(node: ast.Constant, tree: ast.Module) -> bool:
    return any(isinstance(each, ast.Expr) and each.value is node for each in ast.walk(tree))


def test_the_same_statement_has_the_same_name_in_both_dialects():
    """Parameters and spaces aside."""

    def plain(text: str) -> str:
        return " ".join(re.sub(r"[:$@?]\w*|::\w+", "?", re.sub(r"\b(hawser_|given\.)", "", text)).lower().split())

    sqlite, postgres = ({name: plain(text) for name, text in dialect.statements.items()} for dialect in DIALECTS)
    differ = [
        f"{mine} of SQLite is {its} of PostgreSQL"
        for mine, text in sqlite.items()
        for its, other in postgres.items()
        if text == other and mine != its
    ]
    assert differ == []
    assert len(sqlite.keys() & postgres.keys()) >= 60, "the dialects have drifted apart"


LUA = SOURCE / "stores" / "redis" / "lua"
SCRIPTS = sorted(LUA.glob("*.lua"))
PARTS = sorted((LUA / "shared").glob("*.lua"))
REDIS = [tree for name, tree in TREES.items() if name.startswith("stores.redis")]


@pytest.mark.parametrize("path", [*SCRIPTS, *PARTS], ids=lambda path: path.stem)
def test_a_script_opens_with_its_keys_its_answer_and_a_sentence(path):
    """KEYS and ARGV, what it returns, what it does, what it uses: in this order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = lines[: next(number for number, line in enumerate(lines) if not line.startswith("--"))]
    whole = "\n".join(comment)
    assert re.match(r"-- KEYS\[1\]", whole), "KEYS come first"
    assert "ARGV" in whole.partition("-- Returns:")[0], "then ARGV, before what is returned"
    said = whole.partition("-- Returns:")[2].partition("\n-- uses:")[0].splitlines()
    assert any(re.match(r"-- [A-Z`]", line) for line in said[1:]), "no sentence says what it does"
    assert said[-1].endswith("."), "a sentence has an end"
    assert path.parent == LUA / "shared" or comment[-1].startswith("-- uses:"), "the parts that it uses come last"


def test_every_script_is_run_and_every_part_is_used():
    assert sorted({path.stem for path in SCRIPTS} - texts(REDIS)) == []
    used = {part_ for path in SCRIPTS for part_ in re.findall(r"^-- uses:(.*)$", path.read_text(), re.MULTILINE)[0].split()}
    # Scripts for streams have `fresh_streams` in the place of `fresh_lists`.
    assert sorted(used | {"start", "fresh_streams"}) == sorted(path.stem for path in PARTS)


@pytest.mark.parametrize("lanes", ["lists", "streams"])
def test_a_script_has_fewer_names_than_lua_takes(lanes):
    """200 of one function; what is private to a shared part stands in a block of its own, or in a table."""
    names = re.compile(r"^local (?:function (?P<function>\w+)|(?P<several>[\w, ]+?)(?: =|$))", re.MULTILINE)
    counts = {
        name: sum(1 if found["function"] else found["several"].count(",") + 1 for found in names.finditer(script.text))
        for name, script in REDIS_SCRIPTS[lanes].items()
    }
    assert {name: count for name, count in counts.items() if count > 195} == {}


def test_lua_stands_in_files():
    assert [text[:60] for text in texts(REDIS) if "redis.call" in text or "KEYS[" in text] == []


def test_each_test_has_a_time_limit(pytestconfig):
    """Of pytest-timeout, which shows the stacks of all threads."""
    assert pytestconfig.pluginmanager.hasplugin("timeout")
    assert 0 < float(pytestconfig.getini("timeout")) <= 300


# What the documents say of the code. The tree of errors on top of errors.py is compared in test_errors.py.


def table(path: Path, heading: str) -> list[list[str]]:
    """The rows of the first table under a heading."""
    text = path.read_text(encoding="utf-8").split(f"\n## {heading}\n", 1)[1]
    lines = text.split("\n## ", 1)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")]
    return rows[2:]


STATES = ROOT / "docs" / "states.md"


def test_the_states_in_the_documents_are_the_states():
    assert [row[0].strip("`") for row in table(STATES, "States")] == [state.value for state in State]


def test_transitions_name_only_states_and_leave_none_out():
    rows = table(STATES, "Transitions")
    named = {word for row in rows for cell in (row[0], row[2]) for word in re.findall(r"`(\w+)`", cell)}
    assert named == {state.value for state in State}
    assert all(len(row) == 6 for row in rows), "from, event, to, attempt, lease number, record"


def test_the_architecture_names_every_part():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = re.search(r"```\n(src/hawser/\n.*?)```", text, re.DOTALL)
    assert drawn is not None
    named = set(re.findall(r"[\w.]+", drawn[1]))
    tops = {path.name for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(tops - named) == []
    mentioned = {name for name in named if name.endswith(".py")}
    assert sorted(name for name in mentioned if not list(SOURCE.rglob(name))) == []


def test_the_layers_in_the_documents_are_the_layers():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = text.split("<!-- layers -->\n```\n", 1)[1].split("```", 1)[0]
    assert [tuple(re.findall(r"\w+", line)) for line in drawn.splitlines()] == list(LAYERS)


def test_the_guide_names_every_subject_of_the_contract():
    text = (ROOT / "docs" / "guides" / "testing.md").read_text(encoding="utf-8")
    assert [subject for subject in contract.SUBJECTS if f"`{subject}`" not in text] == []


def test_every_decision_is_in_the_index():
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text(encoding="utf-8")
    records = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", index) == records
    for name in records:
        headings = re.findall(r"^## (\w+)$", (folder / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert headings == ["Status", "Context", "Decision", "Consequences"], name
