"""The shape of the code: which way imports point, what modules are called, and what code and documents say of each other."""

from __future__ import annotations

import ast
import graphlib
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

import hawser
from hawser import State
from hawser.stores.postgres import server as postgres_server
from hawser.stores.postgres import stored_functions
from hawser.stores.redis.key_types import FAMILIES, KEYS
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
    ("upkeep", "worker"),
    ("client", "config", "context", "cycle", "handler", "task", "task_options", "telemetry"),
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
        "handle",
        "job",
        "limit",
        "outcome",
        "policy",
        "redaction",
        "schedule",
        "value",
    ),
)
"""Modules and packages of `hawser`, highest first; `hawser` is the package's own `__init__`. An import goes to the same layer or
a lower one, and never in a circle. `docs/architecture.md` draws the same."""

UPWARD = {
    ("api.openapi", "hawser"): "the version, for the document",
    ("app", "api.options"): "says what `asgi` takes",
    ("app", "api.server"): "makes the API of an app, for programs that serve it",
    ("client.app_loader", "app"): "loads an app by its name, for commands that were given only the name",
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
    "PreparedEmit": "the protocol, and what keeps it in each store",
    "PreparedEnd": "as of PreparedEmit",
    "PreparedEnqueue": "as of PreparedEmit",
    "PreparedStep": "as of PreparedEmit",
}
"""Names of classes that stand in more than one part, with the reason. Stores may have parts of one name, one each: they do the
same, and the first sentence of their docstrings says so in the same words."""

SAME_CONSTANT = {
    "NUMBERS": "what an experiment may be told, which `hawser lab` finds by this name",
    "SQL": "the statements of a dialect, by their names",
}
"""Constants of one name and several values, with the reason."""

LONGEST = 350
LONGEST_SCRIPT = 450
"""Lines of a module, and of a file of SQL or Lua."""


MOST_PARAMETERS = 8
"""Of a constructor that is written. Structs, tuples and dictionaries of values have none of their own: they are rows of a store,
bodies of requests and figures, they know no other part, and each field is filled from the column or key of its name."""

WRONG_NAMES = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}

CLOCK_READERS = {
    "clock": "it is the clock",
    "value.ids": "a UUIDv7 begins with the time; no decision rests on it",
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


class Trees(Mapping[str, ast.Module]):
    """The syntax of each module, parsed when a test asks for it: each process of a run reads this file, few run its tests."""

    def __init__(self) -> None:
        self._parsed: dict[str, ast.Module] = {}

    def __getitem__(self, name: str) -> ast.Module:
        if name not in self._parsed:
            self._parsed[name] = ast.parse(MODULES[name].read_text(encoding="utf-8"))
        return self._parsed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


TREES = Trees()


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


@cache
def all_imports() -> tuple[Import, ...]:
    return tuple(found for name in MODULES for found in imports(name))


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """The classes of every module, private ones too: a reader who looks for a name is to find one thing."""
    for name, tree in TREES.items():
        yield from ((name, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def store_of(module: str) -> str:
    """The store that a module is a part of, or nothing."""
    found = re.match(r"stores\.(memory|sqlite|postgres|redis)\.", module)
    return found[1] if found else ""


def test_a_class_name_has_one_meaning():
    places: dict[str, set[str]] = {}
    for module, node in classes():
        places.setdefault(node.name, set()).add("a store" if store_of(module) else module)
    shared = {name for name, modules in places.items() if len(modules) > 1}
    assert shared - SAME_NAME.keys() == set(), "one name, one meaning: rename one of them, or give the reason in SAME_NAME"
    assert SAME_NAME.keys() - shared == set(), "no longer shared"


def test_a_part_and_a_store_have_one_class_of_a_name():
    found = Counter((store_of(module) or module, node.name) for module, node in classes())
    assert [f"{name} of {where}" for (where, name), times in found.items() if times > 1] == [], "rename one of them"


def test_classes_of_one_name_in_several_stores_mean_the_same():
    """As far as their first sentences say so. A class that does something else gets a name of its own."""
    meanings: dict[str, dict[str, str]] = {}
    for module, node in classes():
        if store := store_of(module):
            meanings.setdefault(node.name, {})[store] = first_sentence(ast.get_docstring(node) or "")
    assert {name: found for name, found in meanings.items() if len(set(found.values())) > 1} == {}
    assert sum(len(found) > 1 for found in meanings.values()) > 20, "stores name their parts alike"


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]


def constants() -> Iterator[tuple[str, str, str]]:
    """Module, name and value of each constant of a module.

    The catalogue of metrics is left out: its names are read as `metric.NAME`.
    """
    for module, tree in TREES.items():
        for node in tree.body if module != "telemetry.metric" else ():
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=value):
                    if name.isupper() and value is not None:
                        yield module, name, ast.unparse(value)


def test_a_constant_has_one_value():
    """A constant that several modules define under one name has the same value in all of them. A private one may differ between
    stores, which do the same in different ways."""
    values: dict[str, dict[str, str]] = {}
    for module, name, value in constants():
        values.setdefault(name, {})[module] = value

    def differs(name: str, found: Mapping[str, str]) -> bool:
        whole = not name.startswith("_") or not all(store_of(module) for module in found)
        groups = [set(found)] if whole else [{one for one in found if store_of(one) == store} for store in map(store_of, found)]
        return any(len({found[module] for module in group}) > 1 for group in groups)

    several = {name: found for name, found in values.items() if differs(name, found)}
    differ = {name: found for name, found in several.items() if name not in SAME_CONSTANT}
    assert differ == {}, "say in the name what it is of and its unit, or give the reason in SAME_CONSTANT"
    assert SAME_CONSTANT.keys() - several.keys() == set(), "no longer several"


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
    assert many == set(), f"more than {MOST_PARAMETERS} parameters: part the class, or put values that go together into a struct"


def test_every_module_has_one_layer():
    named = [name for parts in LAYERS for name in parts]
    assert sorted(named) == sorted({part(module) for module in MODULES})


def test_imports_go_down():
    up = [
        found
        for found in all_imports()
        if part(found.user) != part(found.used)
        and layer(found.used) < layer(found.user)
        and (found.user, found.used) not in UPWARD
    ]
    assert up == []


def test_imports_that_go_up_are_never_made_at_import():
    assert [found for found in all_imports() if (found.user, found.used) in UPWARD and found.kind == "top"] == []


def test_no_exception_is_left_that_nobody_needs():
    assert {pair for pair in UPWARD if pair not in {(found.user, found.used) for found in all_imports()}} == set()


def test_no_modules_import_each_other_in_a_circle():
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for found in all_imports():
        if found.kind == "top":
            graph[found.user].add(found.used)
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_no_parts_import_each_other_in_a_circle():
    graph: dict[str, set[str]] = {part(name): set() for name in MODULES}
    for found in all_imports():
        if part(found.user) != part(found.used) and (found.user, found.used) not in UPWARD:
            graph[part(found.user)].add(part(found.used))
    graphlib.TopologicalSorter(graph).prepare()


def test_stores_know_nothing_of_those_who_use_them():
    below = {name for parts in LAYERS[LAYERS.index(("store",)) :] for name in parts}
    strangers = [found for found in all_imports() if part(found.user) == "stores" and part(found.used) not in {"stores", *below}]
    assert strangers == []


def test_stores_know_nothing_of_each_other():
    folders = {path.parent.name for path in (SOURCE / "stores").glob("*/__init__.py")}
    assert {"memory", "sqlite"} <= folders

    def store(module: str) -> str:
        return next((name for name in folders if module.startswith(f"stores.{name}")), "")

    crossed = [found for found in all_imports() if store(found.user) and store(found.used) not in ("", store(found.user))]
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
        return sorted((SOURCE / "stores" / self.store).glob("*.sql"))


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


@pytest.mark.parametrize("ending", ["sql", "lua"])
def test_files_of_sql_and_lua_are_short(ending):
    """Migrations aside: they are never changed."""
    found = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE.rglob(f"*.{ending}")}
    long = {path.name: lines for path, lines in found.items() if lines > LONGEST_SCRIPT and path.parent.name != "migrations"}
    assert long == {}, f"more than {LONGEST_SCRIPT} lines: split them by subject"


POSTGRES = SOURCE / "stores" / "postgres"
FUNCTIONS = sorted((POSTGRES / "functions").glob("*.sql"))
FUNCTION = re.compile(r"^create or replace function hawser\.(\w+)", re.MULTILINE)


def test_every_file_of_functions_is_read():
    assert sorted(path.stem for path in FUNCTIONS) == sorted(stored_functions.FILES)


@pytest.mark.parametrize("path", FUNCTIONS, ids=lambda path: path.stem)
def test_every_function_says_what_it_is_for(path):
    """A sentence on top of the file, and one above each function."""
    text = path.read_text(encoding="utf-8")
    assert re.match(r"-- [A-Z].*\.\n\n", text), "no sentence says what the file is for"
    for function in FUNCTION.finditer(text):
        comment = text[: function.start()].rpartition("\n\n")[2]
        said = " ".join(line.removeprefix("-- ") for line in comment.splitlines())
        assert comment.startswith("-- "), f"{function[1]} has no sentence above it"
        assert re.fullmatch(r"[A-Z`].*\.", said), f"{function[1]} has no sentence above it"


def test_every_function_is_called():
    """By a statement, by another function, or by a trigger that a migration has made."""
    functions = "\n".join(path.read_text(encoding="utf-8") for path in FUNCTIONS)
    statements = "\n".join(postgres_server.SQL.values()) + "\n".join(texts(DIALECTS[1].trees))
    triggers = "\n".join(path.read_text(encoding="utf-8") for path in (POSTGRES / "migrations").glob("*.sql"))
    made = FUNCTION.findall(functions)
    assert len(made) == len(set(made)) > 40
    unused = [
        name
        for name in made
        if f"hawser.{name}(" not in statements
        and len(re.findall(rf"hawser\.{name}\(", functions)) < 2
        and f"execute function hawser.{name}()" not in triggers
    ]
    assert unused == []


LUA = SOURCE / "stores" / "redis" / "lua"
SCRIPTS = sorted(LUA.glob("*.lua"))
PARTS = sorted((LUA / "shared").glob("*.lua"))


def in_redis() -> set[str]:
    """Every text in the code of this store."""
    return texts(tree for name, tree in TREES.items() if name.startswith("stores.redis"))


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
    assert sorted({path.stem for path in SCRIPTS} - in_redis()) == []
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


COMMANDS = {
    "hash": "HDEL HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HRANDFIELD HSCAN HSET HSETNX HVALS",
    "list": "LINDEX LLEN LPOP LPUSH LRANGE LTRIM RPOP RPUSH",
    "set": "SADD SCARD SISMEMBER SMEMBERS SMOVE SPOP SRANDMEMBER SREM SSCAN",
    "stream": "XADD XDEL XLEN XRANGE XREVRANGE XTRIM",
    "string": "DECR GET INCR INCRBY SET",
    "zset": "ZADD ZCARD ZCOUNT ZMSCORE ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZREM ZREVRANGEBYLEX ZREVRANGEBYSCORE ZSCAN ZSCORE",
}
TYPE_OF = {command: kind for kind, commands in COMMANDS.items() for command in commands.split()}
CHANNELS = {"wake", "upkeep", "opened"}
LUA_TEXTS = [path.read_text(encoding="utf-8") for path in (*SCRIPTS, *PARTS)]


@pytest.mark.parametrize(("known", "names"), [(KEYS, r"P \.\. '([\w:]+)'(?! \.\.)"), (FAMILIES, r"P \.\. '([\w:]+)' \.\.")])
def test_each_key_that_a_script_names_has_a_type_that_open_looks_at(known, names):
    used = {name for text in LUA_TEXTS for name in re.findall(names, text)} - CHANNELS
    assert {name for name in used if name not in known and name.partition(":")[0] + ":" not in known} == {"l:"} & used


def test_each_key_that_open_looks_at_is_of_the_type_that_scripts_use():
    found = re.compile(r"'([A-Z]+)', P \.\. '([\w:]+)'( \.\.)?")
    used = {(name, TYPE_OF[command]) for text in LUA_TEXTS for command, name, _ in found.findall(text) if command in TYPE_OF}
    types = {name: KEYS.get(name) or FAMILIES[name.partition(":")[0] + ":"] for name, _ in used}
    assert {(name, kind, types[name]) for name, kind in used if types[name] != kind} == set()
    other = {command for text in LUA_TEXTS for command, name, _ in found.findall(text) if name not in CHANNELS}
    assert other - TYPE_OF.keys() <= {"DEL", "EXISTS", "EXPIRE", "TYPE", "UNLINK"}
    words = "\n".join(LUA_TEXTS)
    assert [name for name in KEYS if name.partition(":")[0] not in words] == []


def test_lua_stands_in_files():
    assert [text[:60] for text in in_redis() if "redis.call" in text or "KEYS[" in text] == []


def test_each_test_has_a_time_limit(pytestconfig):
    """Of pytest-timeout, which shows the stacks of all threads."""
    assert pytestconfig.pluginmanager.hasplugin("timeout")
    assert 0 < float(pytestconfig.getini("timeout")) <= 300


# Tests.


HANGS_FROM_S = 10
"""A handler that sleeps for so many seconds never ends by itself: what is tested ends it."""


def fixed_waits(path: Path) -> Iterator[str]:
    """The sleeps of a file that look for nothing in between and give no reason."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for call in _sleeps(ast.parse("\n".join(lines)), in_test=False):
        if not any(line.lstrip().startswith("#") or "  # " in line for line in lines[call.lineno - 2 : call.lineno]):
            yield f"{path.relative_to(ROOT)}:{call.lineno} {ast.unparse(call)}"


def _sleeps(node: ast.AST, *, in_test: bool) -> Iterator[ast.Call]:
    """A `while` polls for an event, and `ctx.sleep` is ours. A handler or helper that is told how long sleeps for its caller."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.While():
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _sleeps(child, in_test=child.name.startswith("test_"))
                continue
            case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio" | "time"), attr="sleep"), args=[first, *_]):
                seconds = first.value if isinstance(first, ast.Constant) and isinstance(first.value, int | float) else None
                if in_test if seconds is None else 0 < seconds < (math.inf if in_test else HANGS_FROM_S):
                    yield child
        yield from _sleeps(child, in_test=in_test)


def test_a_fixed_wait_in_a_test_has_its_reason():
    """An event with a limit is better: `tests/until.py`. Where nothing tells of it, say so beside the wait. A handler that takes
    its time says what for."""
    files = [path for path in sorted((ROOT / "tests").rglob("*.py")) if "drills" not in path.parts]
    assert [wait for path in files for wait in fixed_waits(path)] == []


def endless_waits(path: Path) -> Iterator[str]:
    """Calls that wait for a thread, a process or a barrier and say no limit. Coroutines end with the limit of their test."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="join" | "wait" | "communicate"), args=[], keywords=[]):
                around = list(
                    takewhile(lambda each: isinstance(each, ast.expr | ast.keyword | ast.comprehension), _above(node, parents))
                )
                is_awaited = any(isinstance(each, ast.Await) or "asyncio." in ast.unparse(each) for each in around)
                if not is_awaited and not any(isinstance(each, ast.Lambda) for each in around):
                    yield f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"


def _above(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    while (above := parents.get(node)) is not None:
        yield above
        node = above


def test_a_wait_in_a_test_has_a_limit():
    """Else a fault is told only after the test's 300 s, and of a fixture not at all."""
    assert [wait for path in sorted((ROOT / "tests").rglob("*.py")) for wait in endless_waits(path)] == []


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


def test_the_architecture_names_every_package():
    """Single modules stand in the layers, which the next test compares."""
    rows = table(ROOT / "docs" / "architecture.md", "The packages")
    named = [found for row in rows for found in re.findall(r"^`(\w+)/`$", row[0])]
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert sorted({*named} - {"dashboard"}) == sorted(packages), "the dashboard is there only once it is built"
    told = {name for row in rows for name in re.findall(r"`(\w+\.py)`", row[1])}
    assert sorted(name for name in told if not (SOURCE / name).exists()) == []


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
