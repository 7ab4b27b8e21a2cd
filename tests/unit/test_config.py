"""Settings."""

from __future__ import annotations

import pytest

from hawser import ConfigError, Retention
from hawser.config import Config, load


def test_the_defaults_are_those_of_the_requirements():
    config = load({}, {})
    assert config == Config()
    assert (config.store, config.max_payload) == ("sqlite:///hawser.db", 65_536)
    assert config.retention is None, "the store says"


def test_arguments_go_before_the_environment():
    environ = {"HAWSER_STORE": "memory://", "HAWSER_MAX_PAYLOAD": "128", "HAWSER_RETENTION": '{"done": 5}'}
    config = load({"max_payload": 256, "store": None}, environ)
    assert (config.store, config.max_payload, config.retention) == ("memory://", 256, Retention(done=5))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"max_payload": "a"}, "max_payload: Expected `int`, got `str`"),
        ({"max_payload": 1}, "max_payload: Expected `int` >= 2"),
        ({"max_payload": True}, "max_payload: Expected `int`, got `bool`"),
        ({"enqueue_tries": 0}, "enqueue_tries: Expected `int` >= 1"),
        ({"enqueue_retry_after": float("nan")}, "enqueue_retry_after: "),
        ({"retention": 5}, "retention: 5 is not a Retention"),
        ({"retention": Retention(done=-1)}, r"retention\.done: -1 is not a time"),
        ({"retention": Retention(dead=float("inf"))}, r"retention\.dead: inf is not a time"),
        ({"retention": {"dne": 1}}, "retention: .* is not a Retention"),
        ({"store": 5}, "store: Expected `str`, got `int`"),
        ({"enqueue_trys": 1}, "enqueue_trys: no such setting; did you mean 'enqueue_tries'"),
        ({"zzz": 1}, "zzz: no such setting; known are store, max_payload"),
    ],
)
def test_a_wrong_argument_is_named(arguments, word):
    with pytest.raises(ConfigError, match=word):
        load(arguments, {})


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("HAWSER_MAX_PAYLOAD", "lots", "HAWSER_MAX_PAYLOAD: .*the environment says 'lots'"),
        ("HAWSER_ENQUEUE_TRIES", "0", "HAWSER_ENQUEUE_TRIES: Expected `int` >= 1"),
        ("HAWSER_RETENTION", "5 days", "HAWSER_RETENTION: "),
        ("HAWSER_RETENTION", '{"done": -5}', r"HAWSER_RETENTION\.done: -5"),
    ],
)
def test_a_wrong_variable_is_named(name, text, word):
    with pytest.raises(ConfigError, match=word):
        load({}, {name: text})


def test_variables_of_others_are_left_alone():
    assert load({}, {"HAWSER_PORT": "tcp://10.0.0.1:80", "HAWSER_TEST_REDIS": "x", "HAWSER_STORE": ""}) == Config()


def test_settings_cannot_be_changed():
    with pytest.raises(AttributeError):
        load({}, {}).max_payload = 5  # type: ignore[misc]
