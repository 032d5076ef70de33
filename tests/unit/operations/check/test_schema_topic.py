"""Checks of the topic with the definitions of the tables."""

from collections.abc import Collection, Iterable

import pytest

from replicator.config import KafkaLog
from replicator.operations.check import log_facts
from replicator.operations.check.log_facts import TopicFacts, read_topics
from replicator.operations.check.result import CheckResult
from replicator.operations.check.topics import check_schema_topic

_DAY_MS = 86_400_000
_LOG = KafkaLog(kind="kafka", bootstrap_servers="b:1", topic_prefix="p")


def checked(topic: TopicFacts) -> CheckResult:
    (result,) = check_schema_topic((topic, TopicFacts("p.shop.orders", 1, retention_ms=_DAY_MS)), _LOG)
    assert result.name == "log: schema changes"
    return result


def test_topic_that_keeps_all_definitions_is_accepted() -> None:
    assert checked(TopicFacts("p", 1)) == CheckResult("log: schema changes", "ok", "p keeps all definitions")


@pytest.mark.parametrize(
    ("topic", "found", "setting"),
    [
        (TopicFacts("p", 1, retention_ms=7 * _DAY_MS), "after 7 days", "retention.ms = -1"),
        (TopicFacts("p", 1, retention_ms=_DAY_MS), "after 1 day", "retention.ms = -1"),
        (TopicFacts("p", 1, retention_bytes=1 << 20), "beyond 1,048,576 bytes", "retention.bytes = -1"),
        (
            TopicFacts("p", 1, retention_ms=_DAY_MS // 2, retention_bytes=10),
            "after 0.5 days, and beyond 10 bytes",
            "retention.ms = -1 and retention.bytes = -1",
        ),
    ],
)
def test_finite_retention_is_reported_with_the_setting_that_ends_it(
    topic: TopicFacts, found: str, setting: str
) -> None:
    result = checked(topic)
    assert result.status == "warn"
    assert result.found == f"Kafka deletes definitions from p {found}"
    assert f"set {setting} on it" in result.next_step
    assert "a connector that lost its offset" in result.next_step


def test_definitions_that_are_deleted_are_reported_even_if_the_others_are_kept() -> None:
    result = checked(TopicFacts("p", 1, first_offset=40))
    assert result.status == "warn"
    assert result.found == "p begins at offset 40: the definitions before it are deleted"
    assert result.next_step.startswith("if tables pause")
    assert "replicator heal" in result.next_step
    both = checked(TopicFacts("p", 1, retention_ms=_DAY_MS, first_offset=40))
    assert "begins at offset 40" in both.found
    assert "set retention.ms = -1" in both.next_step


def test_retention_may_be_finite_if_an_archive_keeps_the_definitions() -> None:
    log = _LOG.model_copy(update={"archive": "past"})
    (result,) = check_schema_topic((TopicFacts("p", 1, retention_ms=_DAY_MS, first_offset=40),), log)
    assert (result.status, result.found) == ("ok", "the archive of p keeps what Kafka deletes")
    (compacted,) = check_schema_topic((TopicFacts("p", 1, cleanup_policy="compact"),), log)
    assert compacted.status == "warn"


class _Admin:
    """Answers as Kafka does, for a schema-change topic that has lost its first records."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def partitions(self) -> dict[str, list[int]]:
        return {"p": [0], "p.shop.orders": [0, 1], "other": [0]}

    def settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        kept = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "1000"}
        return dict.fromkeys(topics, kept)

    def first_offsets(self, partitions: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(partitions, 9)


def test_read_topics_has_retention_and_the_first_offset_of_the_schema_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_facts, "KafkaAdmin", _Admin)
    assert read_topics(_LOG) == (
        TopicFacts("p", 1, retention_bytes=1000, first_offset=9),
        TopicFacts("p.shop.orders", 2, retention_bytes=1000),
    )
