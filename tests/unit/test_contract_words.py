"""The contract suite and the words of the seam are the same: each sentence has a test, each quote is a sentence."""

import importlib
import importlib.resources
import inspect
import re
from collections import Counter

import pytest

from hawser.store import DependencyStore, EndReader, JobStore
from hawser.store.api_key import KeyStore
from hawser.store.batches import BatchStore
from hawser.store.breakers import BreakerStore
from hawser.store.bulk import BulkStore
from hawser.store.edits import Editor
from hawser.store.events import EventStore
from hawser.store.expiry import ExpiryStore
from hawser.store.keeping import KeepingStore
from hawser.store.limits import LimitStore
from hawser.store.operator import Operator
from hawser.store.output import OutputStore
from hawser.store.rollup import Watcher
from hawser.store.schedules import ScheduleStore
from hawser.store.steps import StepStore
from hawser.store.weight import WeightStore
from hawser.testing import contract

PROTOCOLS = (
    *(
        JobStore,
        ScheduleStore,
        Operator,
        Editor,
        LimitStore,
        BreakerStore,
        WeightStore,
        EndReader,
        DependencyStore,
        BatchStore,
        ExpiryStore,
        KeepingStore,
        KeyStore,
        BulkStore,
    ),
    *(StepStore, OutputStore, EventStore, Watcher),
)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")


def sentences(text: str | None) -> list[str]:
    """The sentences of a docstring, each on one line; a clause after a semicolon belongs to its sentence."""
    words = " ".join((text or "").split())
    return SENTENCE_END.split(words) if words else []


def promises() -> list[tuple[str, str]]:
    """Every sentence of the seam with its method."""
    return [
        (f"{protocol.__name__}.{name}", sentence)
        for protocol in PROTOCOLS
        for name, method in vars(protocol).items()
        if inspect.isfunction(method) and not name.startswith("_")
        for sentence in sentences(inspect.getdoc(method))
    ]


TESTS = {name: getattr(contract, name) for name in contract.__all__}
QUOTED = Counter(sentence for test in TESTS.values() for sentence in sentences(inspect.getdoc(test)))
PROMISED = Counter(sentence for _, sentence in promises())


def test_sentences_are_told_apart():
    text = """
    Held for `key_ttl` seconds; then free. `QueueFull` is raised,
    also at 0.5 s.

    A second one! Last
    """
    assert sentences(text) == [
        "Held for `key_ttl` seconds; then free.",
        "`QueueFull` is raised, also at 0.5 s.",
        "A second one!",
        "Last",
    ]
    assert sentences(None) == sentences("") == []


def test_every_method_of_the_seam_says_what_it_does():
    for protocol in PROTOCOLS:
        for name, method in vars(protocol).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                assert method.__doc__, name
    assert len(promises()) > 60


@pytest.mark.parametrize(("method", "sentence"), promises())
def test_every_sentence_has_a_test(method, sentence):
    assert QUOTED[sentence] >= PROMISED[sentence], f"no test quotes {method}: {sentence}"


@pytest.mark.parametrize("name", TESTS)
def test_a_test_quotes_only_what_is_promised(name):
    unknown = [sentence for sentence in sentences(inspect.getdoc(TESTS[name])) if sentence not in PROMISED]
    assert unknown == [], f"{name} quotes what hawser.store does not say"


def test_every_test_of_every_subject_is_exported():
    modules = [importlib.import_module(f"{contract.__name__}.{subject}") for subject in contract.SUBJECTS]
    written = Counter(
        name
        for module in modules
        for name, value in vars(module).items()
        if name.startswith("test_") and value.__module__ == module.__name__
    )
    assert written == Counter(contract.__all__)


def test_every_module_of_the_suite_is_a_subject():
    folder = importlib.resources.files(contract)
    modules = {entry.name.removesuffix(".py") for entry in folder.iterdir() if entry.name.endswith(".py")}
    assert modules == {*contract.SUBJECTS, "cost", "making", "scheduling", "__init__"}


def test_the_tests_are_plain_coroutines():
    assert all(inspect.iscoroutinefunction(test) for test in TESTS.values())
