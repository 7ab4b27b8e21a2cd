"""No password of a store's URL is ever shown."""

from __future__ import annotations

import pytest

from hawser.errors import ConfigError
from hawser.stores import make_store, schema_of
from hawser.stores.postgres.address import parse
from hawser.stores.url import without_password

SECRET = "s3cret"

SHOWN = {
    f"postgresql://ann:{SECRET}@db:5432/jobs?schema=a": "postgresql://ann:***@db:5432/jobs?schema=a",
    f"postgresql://ann:{SECRET}@db1,db2/jobs": "postgresql://ann:***@db1,db2/jobs",
    f"postgresql://:{SECRET}@db": "postgresql://:***@db",
    f"postgresql://ann:a@{SECRET}@db/jobs?x=a@b": "postgresql://ann:***@db/jobs?x=a@b",
    f"postgresql://ann:a/{SECRET}@db/jobs": "postgresql://ann:***@db/jobs",
    f"postgresql://ann:1a?{SECRET}#@db/jobs": "postgresql://ann:***@db/jobs",
    "postgresql://ann:12345678@db": "postgresql://ann:***@db",
    f"postgresql://ann:1234,{SECRET}@db/jobs": "postgresql://ann:***@db/jobs",
    f"postgresql://ann:99/{SECRET}@db": "postgresql://ann:***@db",
    f"postgresql://ann:7#{SECRET}@db": "postgresql://ann:***@db",
    f"postgresql://ann:?{SECRET}@db": "postgresql://ann:***@db",
    f"postgresql://me@corp:{SECRET}@db": "postgresql://me@corp:***@db",
    "postgresql://ann@db1:5432,db2:5433/jobs": "postgresql://ann@db1:5432,db2:5433/jobs",
    f"postgresql:///jobs?user=ann&password={SECRET}&schema=a": "postgresql:///jobs?user=ann&password=***&schema=a",
    f"postgresql:///jobs?SSLPassword={SECRET}": "postgresql:///jobs?SSLPassword=***",
    f"ann:{SECRET}@db/jobs": "ann:***@db/jobs",
    "postgresql://db:5432/jobs?application_name=a@b": "postgresql://db:5432/jobs?application_name=a@b",
    "postgresql://db1:5432,db2:5433/jobs": "postgresql://db1:5432,db2:5433/jobs",
    "sqlite:////srv/a@b/jobs.db?timeout=5": "sqlite:////srv/a@b/jobs.db?timeout=5",
    f"postgresql://ann:{SECRET}/jobs": "postgresql://ann:***/jobs",
    f"host=db user=ann password={SECRET} dbname=jobs": "host=db user=ann password=*** dbname=jobs",
    f"host=db password = 'a {SECRET}' dbname=jobs": "host=db password = *** dbname=jobs",
    f"postgresql:///jobs?pass%77ord={SECRET}&schema=a": "postgresql:///jobs?pass%77ord=***&schema=a",
    "memory://": "memory://",
}

AMBIGUOUS = [
    f"postgresql://ann:a/{SECRET}@db/jobs",
    f"postgresql://ann:1a?{SECRET}#@db/jobs",
    f"postgresql://ann:99/{SECRET}@db",
    f"postgresql://ann:7#{SECRET}@db",
    f"postgresql://ann:?{SECRET}@db",
    f"postgresql://ann:[{SECRET}@db",
    f"postgresql://ann:{SECRET}/jobs",
]
"""The password would be taken for a host, a port or a path."""


@pytest.mark.parametrize("url", SHOWN)
def test_a_password_is_hidden_and_the_rest_stays(url: str):
    assert without_password(url) == SHOWN[url]


@pytest.mark.parametrize("url", AMBIGUOUS)
def test_a_password_that_splits_the_url_is_refused_with_the_way_to_write_it(url: str):
    with pytest.raises(ConfigError) as refused:
        parse(url)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("url", [url for url in SHOWN if url.startswith("postgresql:") and url not in AMBIGUOUS])
def test_the_server_in_words_has_no_password(url: str):
    assert SECRET not in parse(url).where


@pytest.mark.parametrize("url", [f"ann:{SECRET}@db/jobs", f"memory://ann:{SECRET}@db", f"sqlite://ann:{SECRET}@db/jobs.db"])
def test_a_url_that_is_refused_is_quoted_without_its_password(url: str):
    for refuse in (make_store, schema_of):
        with pytest.raises(ConfigError) as refused:
            refuse(url)
        assert SECRET not in str(refused.value)
        assert "***" in str(refused.value)
