"""How Spark reads a topic; planning a read needs no broker."""

import pytest

from replicator.config import KafkaLog
from replicator.model.commit_marker import OffsetRange
from replicator.sources.kafka.log import KafkaChangeLog
from tests.support.lake_harness import LakeHarness


def test_kafka_read_is_planned_with_data_source_v2(lake: LakeHarness) -> None:
    """Spark's older interface creates an object for each record and each of its values."""
    log = KafkaChangeLog(KafkaLog(kind="kafka", bootstrap_servers="127.0.0.1:1", topic_prefix="shop"))
    spark = lake.session(lake.config())
    records = log.read(spark, [OffsetRange("shop.shop.orders", 0, 3, 9)])
    plan = records._jdf.queryExecution().analyzed().toString()
    assert "RelationV2" in plan, plan


@pytest.mark.parametrize(
    ("records", "polled", "prefetch_records"),
    [(6, 500, 1 << 20), (3_000, 3_000, 3_000 << 10), (10**6, 20_000, 16 << 20)],
)
def test_fetch_limits_depend_on_the_largest_offset_range(
    lake: LakeHarness, records: int, polled: int, prefetch_records: int
) -> None:
    log = KafkaChangeLog(KafkaLog(kind="kafka", bootstrap_servers="127.0.0.1:1", topic_prefix="shop"))
    ranges = [OffsetRange("shop.shop.orders", 0, 3, 4), OffsetRange("shop.shop.orders", 1, 3, 3 + records)]
    frame = log.read(lake.session(lake.config()), ranges)
    options = frame._jdf.queryExecution().analyzed().collectLeaves().head().options()
    assert options.get("kafka.max.poll.records") == str(polled)
    assert options.get("kafka.max.partition.fetch.bytes") == str(prefetch_records)


def test_cached_consumers_are_released_after_one_second(lake: LakeHarness) -> None:
    """The next batch has other consumers, so records that were read ahead are useless."""
    conf = lake.base.sparkContext.getConf()
    for cache in ("cache", "fetchedData.cache"):
        for setting in ("timeout", "evictorThreadRunInterval"):
            assert conf.get(f"spark.kafka.consumer.{cache}.{setting}") == "1s"
