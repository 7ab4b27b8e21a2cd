"""The numbers of migrations: a store that has one has all before it, so none may be added in between."""

from __future__ import annotations

import pytest

from hawser.stores.schema import migrations_in


@pytest.mark.parametrize("package", ["hawser.stores.sqlite", "hawser.stores.postgres"])
def test_migrations_are_numbered_without_gaps(package: str):
    versions = [migration.version for migration in migrations_in(package)]
    assert versions == list(range(1, len(versions) + 1))


def test_both_databases_have_the_same_versions():
    sqlite, postgres = (migrations_in(f"hawser.stores.{name}") for name in ("sqlite", "postgres"))
    assert [migration.version for migration in sqlite] == [migration.version for migration in postgres]
