"""How Spark reads a topic; planning it needs no broker."""

import pytest

from replicator.config import KafkaLog
from replicator.model.commit import OffsetRange
from replicator.source.kafka import KafkaChangeLog
from tests.spark.conftest import Lab


def test_records_come_without_a_detour_over_java_rows(lab: Lab) -> None:
    """Spark's older interface makes an object of each record and each of its values."""
    log = KafkaChangeLog(KafkaLog(kind="kafka", bootstrap_servers="127.0.0.1:1", topic_prefix="shop"))
    spark = lab.session(lab.config())
    records = log.read(spark, [OffsetRange("shop.shop.orders", 0, 3, 9)])
    plan = records._jdf.queryExecution().analyzed().toString()
    assert "RelationV2" in plan, plan


@pytest.mark.parametrize(
    ("records", "polled", "fetched"),
    [(6, 500, 1 << 20), (3_000, 3_000, 3_000 << 10), (10**6, 20_000, 16 << 20)],
)
def test_no_more_is_fetched_than_a_range_has(lab: Lab, records: int, polled: int, fetched: int) -> None:
    log = KafkaChangeLog(KafkaLog(kind="kafka", bootstrap_servers="127.0.0.1:1", topic_prefix="shop"))
    ranges = [OffsetRange("shop.shop.orders", 0, 3, 4), OffsetRange("shop.shop.orders", 1, 3, 3 + records)]
    frame = log.read(lab.session(lab.config()), ranges)
    options = frame._jdf.queryExecution().analyzed().collectLeaves().head().options()
    assert options.get("kafka.max.poll.records") == str(polled)
    assert options.get("kafka.max.partition.fetch.bytes") == str(fetched)


def test_consumers_are_given_back_soon(lab: Lab) -> None:
    """What they read ahead is of no use to the next batch, which has consumers of its own."""
    conf = lab.base.sparkContext.getConf()
    for cache in ("cache", "fetchedData.cache"):
        for setting in ("timeout", "evictorThreadRunInterval"):
            assert conf.get(f"spark.kafka.consumer.{cache}.{setting}") == "1s"
