"""Which partitions of a log table are old."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.config.log_tables import LogTableConfig
from replicator.log_tables.retention import expired_before, literal
from replicator.operations.check.log_facts import TopicFacts
from replicator.operations.check.topics import check_log_tables

_UNITS = {"hour": timedelta(hours=1), "day": timedelta(days=1)}


def settings(**changes: Any) -> LogTableConfig:
    return LogTableConfig.model_validate(
        {"topic": "clicks", "table": "logs.clicks", "event_time": "at", **changes}, strict=False
    )


@given(st.integers(0, 4 * 10**12), st.sampled_from(["hour", "day"]), st.integers(24, 2000))
def test_no_partition_with_an_event_of_the_kept_time_is_old(now_ms: int, partition: str, hours: int) -> None:
    before = expired_before(settings(partition=partition, retention=f"{hours} hours"), now_ms)
    assert before is not None
    oldest = datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(hours=hours)
    assert before <= oldest < before + _UNITS[partition]
    assert (before - datetime.fromtimestamp(0, UTC)) % _UNITS[partition] == timedelta(0)


def test_without_retention_nothing_is_old() -> None:
    assert expired_before(settings(partition="day"), 1) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("timestamptz", "2026-11-29T00:00:00+00:00"),
        ("timestamp", "2026-11-29T00:00:00"),
        ("date", "2026-11-29"),
    ],
)
def test_a_boundary_as_iceberg_takes_it(kind: str, text: str) -> None:
    assert literal(datetime(2026, 11, 29, tzinfo=UTC), kind) == text


def test_check_names_topics_that_are_missing_or_compacted() -> None:
    tables = [
        settings(),
        settings(topic="views", table="logs.views"),
        settings(topic="keys", table="logs.keys"),
    ]
    topics = [TopicFacts("clicks", 3, "delete", 604_800_000), TopicFacts("keys", 1, "compact")]
    found = [(result.status, result.found) for result in check_log_tables(tables, topics)]
    assert found == [
        ("ok", "clicks for logs.clicks: 3 partitions, kept for 7 days"),
        ("warn", "Kafka has no topic views for logs.views"),
        ("warn", "keys for logs.keys is compacted: Kafka removes earlier events of a key"),
    ]
