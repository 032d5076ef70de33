"""How Spark reads a topic; planning it needs no broker."""

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


def test_consumers_are_given_back_soon(lab: Lab) -> None:
    """What they read ahead is of no use to the next batch, which has consumers of its own."""
    conf = lab.base.sparkContext.getConf()
    for cache in ("cache", "fetchedData.cache"):
        for setting in ("timeout", "evictorThreadRunInterval"):
            assert conf.get(f"spark.kafka.consumer.{cache}.{setting}") == "1s"
