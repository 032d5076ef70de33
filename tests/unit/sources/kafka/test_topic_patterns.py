"""Topics and their tables."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.model.common import matches
from replicator.sources.change_log import data_topic
from replicator.sources.kafka.topic_patterns import topic_pattern

names = st.text("ab.-_[]!$^& äß", min_size=1, max_size=6)
plain_names = st.text("ab.-", min_size=1, max_size=6)
plain_globs = st.text("ab.*?-", min_size=1, max_size=6)


def is_wanted(name: str, tables: list[str], exclude: list[str]) -> bool:
    return matches(name, tables) and not matches(name, exclude)


@given(
    tables=st.lists(plain_globs, min_size=1, max_size=2),
    exclude=st.lists(plain_globs, max_size=2),
    name=plain_names,
)
def test_topic_pattern_matches_exactly_the_included_tables_when_names_are_plain(
    tables: list[str], exclude: list[str], name: str
) -> None:
    pattern = re.compile(topic_pattern("my.shop", tables, exclude))
    assert (pattern.fullmatch("my.shop." + name) is not None) == is_wanted(name, tables, exclude)


@pytest.mark.parametrize(
    ("topic", "matches"),
    [
        ("shop.db.orders", True),
        ("shop.db.tmp-1", False),
        ("shopXdb.orders", False),
        ("other.db.orders", False),
    ],
)
def test_topic_pattern_matches_only_included_topics(topic: str, matches: bool) -> None:
    pattern = topic_pattern("shop", ["db.*"], ["db.tmp-*"])
    assert (re.fullmatch(pattern, topic) is not None) is matches


@pytest.mark.parametrize(
    ("topic", "names"),
    [
        ("shop.db.orders", ("db", "orders")),
        ("shop.db.with.dot", ("db", "with.dot")),
        ("shop", None),
        ("shop.transaction", None),
        ("shop.db.", None),
        ("shops.db.t", None),
        ("__debezium-heartbeat.shop", None),
    ],
)
def test_data_topic_recognizes_topics_of_tables(topic: str, names: tuple[str, str] | None) -> None:
    assert data_topic(topic, "shop") == names
