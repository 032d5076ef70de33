"""Java and Python read name patterns in the same way: Debezium and Spark match what the mirror includes."""

import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from replicator.model.common import matches, to_regex
from replicator.sources.connector.settings import table_patterns
from replicator.sources.kafka.topic_patterns import topic_pattern

characters = "abA.*?[]!^-_$\\(){}|+#, \n\r\u0085\u2028äß"
texts = st.text(characters, min_size=1, max_size=6)


def test_java_patterns_match_the_same_names_as_python(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    java = jvm.java.util.regex.Pattern

    @given(pattern=texts, name=texts)
    @example(pattern="a*", name="a\u2028")
    @example(pattern="card[1]", name="card1")
    def check(pattern: str, name: str) -> None:
        assert java.matches(to_regex(pattern), name) is matches(name, [pattern])

    check()


def test_debezium_and_spark_lists_match_every_included_name(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    java = jvm.java.util.regex.Pattern

    @given(include=st.lists(texts, min_size=1, max_size=2), exclude=st.lists(texts, max_size=2), name=texts)
    @example(include=["\\", "?"], exclude=[], name="?")
    def check(include: list[str], exclude: list[str], name: str) -> None:
        wanted = matches(name, include) and not matches(name, exclude)
        listed = re.split(r"(?<!\\),", table_patterns(include, exclude))
        flags = java.CASE_INSENSITIVE
        found = any(java.compile(item, flags).matcher(name).matches() for item in listed)
        # Debezium ignores letter case; the mirror does not.
        assert found or not wanted
        assert not (found and matches(name, exclude))
        topics = topic_pattern("shop", include, exclude)
        topic = "shop." + re.sub(r"[^A-Za-z0-9._-]", "_", name)
        assert java.matches(topics, topic) is (re.fullmatch(topics, topic) is not None)
        assert java.matches(topics, topic) or not wanted

    check()
