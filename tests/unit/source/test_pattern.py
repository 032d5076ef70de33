"""Topics and the tables that they carry."""

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.source.log import data_topic
from replicator.source.pattern import topic_pattern

names = st.text("ab.-_[]!$^&", min_size=1, max_size=6)
globs = st.text("ab.*?[]!-_$^&", min_size=1, max_size=6)


@given(tables=st.lists(globs, min_size=1, max_size=2), exclude=st.lists(globs, max_size=2), name=names)
def test_pattern_agrees_with_the_configuration(tables: list[str], exclude: list[str], name: str) -> None:
    pattern = re.compile(topic_pattern("my.shop", tables, exclude))
    wanted = any(fnmatchcase(name, t) for t in tables) and not any(fnmatchcase(name, t) for t in exclude)
    assert (pattern.fullmatch("my.shop." + name) is not None) == wanted


@pytest.mark.parametrize(
    ("topic", "matches"),
    [
        ("shop.db.orders", True),
        ("shop.db.tmp_1", False),
        ("shopXdb.orders", False),
        ("other.db.orders", False),
    ],
)
def test_pattern(topic: str, matches: bool) -> None:
    pattern = topic_pattern("shop", ["db.*"], ["db.tmp_*"])
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
def test_topics_of_tables(topic: str, names: tuple[str, str] | None) -> None:
    assert data_topic(topic, "shop") == names
