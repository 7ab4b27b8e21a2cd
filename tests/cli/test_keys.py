"""`hawser keys`: create, ls, revoke."""

import json
from pathlib import Path

import pytest

from hawser.store.api_key import hash_of, id_of
from tests.cli.conftest import SHOP, Run
from tests.cli.given import HOSTILE, Given
from tests.postgres import new_schema, server, versions, with_schema


def test_a_key_is_shown_once_and_kept_as_a_hash(run: Run, given: Given):
    made = run(
        "keys",
        "create",
        "billing",
        "--role",
        "producer",
        "--role",
        "viewer",
        "--task",
        "charge",
        "--rate",
        "50",
        "--expires",
        "90d",
    )
    assert made.exit_code == 0, made.output
    text = made.stdout.strip()
    [listed] = json.loads(run("keys", "--json").stdout)["keys"]
    assert (listed["id"], listed["name"], listed["roles"]) == (id_of(text), "billing", ["producer", "viewer"])
    assert (listed["tasks"], listed["rate"], listed["state"], listed["used_at"]) == (["charge"], 50.0, "live", None)
    assert listed["expires_at"] is not None
    assert "hash" not in listed
    [record] = given._portal.call(given.store.api_keys())
    assert record.key.hash == hash_of(text)
    assert text.split("_")[2] not in run("keys", "ls").stdout
    assert [(each.action, each.target) for each in given.audit()] == [("create_key", f"key:{listed['id']}")]


def test_a_task_that_the_app_does_not_have_is_warned_of(run: Run, shop: str):
    made = run("keys", "create", "billing", "--role", "producer", "--task", "chrage", "--task", "send_email", "--app", shop)
    assert made.exit_code == 0
    assert "warning: the app has no task 'chrage'; did you mean 'charge'?" in made.stderr
    assert "send_email" not in made.stderr
    assert "warning" not in run("keys", "create", "billing", "--role", "producer", "--task", "chrage").stderr


def test_a_revoked_key_is_listed_as_such(run: Run):
    id = json.loads(run("keys", "create", "ops", "--role", "admin", "--json").stdout)["id"]
    assert run("keys", "revoke", id, "--reason", "leaked").exit_code == 0
    assert "revoked" in run("keys", "ls").stdout
    again = run("keys", "revoke", id)
    assert (again.exit_code, f"no live key is called '{id}'" in again.stderr) == (1, True)


@pytest.mark.parametrize("named", ["store", "app", "environment"])
def test_the_first_key_makes_the_store(bare: Run, shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str):
    url = f"sqlite:///{tmp_path}/new.db"
    (tmp_path / "shop.py").write_text(SHOP.format(url=url))
    words = {"store": ("--store", url), "app": ("--app", shop), "environment": ()}[named]
    if named == "environment":
        monkeypatch.setenv("HAWSER_STORE", url)
    first = bare("keys", "create", "ops", "--role", "admin", *words)
    assert first.exit_code == 0, first.stderr
    assert f"made the store '{url}': it was not there yet" in first.stderr
    assert [key["id"] for key in json.loads(bare("keys", "--json", *words).stdout)["keys"]] == [id_of(first.stdout.strip())]
    assert "made the store" not in bare("keys", "create", "ops", "--role", "admin", *words).stderr


def test_the_first_key_makes_the_tables(bare: Run):
    url = with_schema(server(versions()[0]), new_schema())
    first = bare("keys", "create", "ops", "--role", "admin", "--store", url)
    assert first.exit_code == 0, first.stderr
    assert "made the store" in first.stderr


def test_a_key_for_no_store_says_how_to_name_one(bare: Run, tmp_path: Path):
    refused = bare("keys", "create", "ops", "--role", "admin")
    assert refused.exit_code == 2
    assert "use --store URL, --app APP or $HAWSER_STORE" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_empty_list_says_what_to_do(run: Run):
    assert "hawser keys create" in run("keys").stderr


def test_a_hostile_name_does_no_harm(run: Run):
    assert run("keys", "create", HOSTILE[:60], "--role", "viewer").exit_code == 0
    assert "\x1b" not in run("keys", "ls").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("create", "x"),
        ("create", "x", "--role", "king"),
        ("create", " ", "--role", "admin"),
        ("create", "x" * 65, "--role", "admin"),
        ("create", "dashboard session of 123", "--role", "admin"),
        ("create", "x", "--role", "admin", "--rate", "0"),
        ("create", "x", "--role", "admin", "--rate", "nan"),
        ("create", "x", "--role", "admin", "--task", "a b"),
        ("create", "x", "--role", "admin", "--expires", "soon"),
    ],
)
def test_wrong_usage_makes_no_key(run: Run, given: Given, words: tuple[str, ...]):
    assert run("keys", *words).exit_code == 2
    assert given._portal.call(given.store.api_keys()) == []
