"""Migrations are numbered and frozen: a store that has one has all before it, so none may change and none be added in between."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hawser.stores.schema import migrations_in


@pytest.mark.parametrize("package", ["hawser.stores.sqlite", "hawser.stores.postgres"])
def test_migrations_are_numbered_without_gaps(package: str):
    versions = [migration.version for migration in migrations_in(package)]
    assert versions == list(range(1, len(versions) + 1))


def test_both_databases_have_the_same_versions():
    sqlite, postgres = (migrations_in(f"hawser.stores.{name}") for name in ("sqlite", "postgres"))
    assert [migration.version for migration in sqlite] == [migration.version for migration in postgres]


ROOT = Path(__file__).parents[2]
LANDED = ROOT / "tests" / "unit" / "migrations.sha256"


def test_a_migration_that_has_landed_does_not_change():
    """Stores that have it would differ from those that get it later, and tests of upgrades would start from what never was.

    The digests are of the files as `sha256sum` sees them. A new migration is added with:
    sha256sum src/hawser/stores/*/migrations/0042*.sql >> tests/unit/migrations.sha256
    """
    landed = {path: digest for digest, path in (line.split() for line in LANDED.read_text(encoding="utf-8").splitlines())}
    files = [path for name in ("sqlite", "postgres") for path in ROOT.glob(f"src/hawser/stores/{name}/migrations/*.sql")]
    found = {str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert sorted(found.keys() - landed.keys()) == [], "a new migration: write its digest down, once, as the docstring says"
    assert sorted(path for path, digest in landed.items() if found.get(path) != digest) == [], (
        "changed: make a new migration instead"
    )
