"""The queries of the tables are planned once, and their number is limited."""

from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from replicator.batch.state.decode_queries import DecodeQueries
from replicator.decode.event_frame import Decoding, WriterSchema
from replicator.decode.json.events import decode
from replicator.jvm.local_query import LocalQuery
from replicator.model.batch_stats import UNDECODABLE
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import INT, LONG

ORDERS, USERS, ITEMS = (TableId("shop", name) for name in ("orders", "users", "items"))


def decoding(columns: int = 2) -> Decoding:
    names = tuple(Column(f"c{i}", INT) for i in range(1, columns))
    schema = TableSchema((Column("id", LONG), *names), ("id",))
    return Decoding((WriterSchema(schema),), schema, True, UNDECODABLE)


def found(queries: DecodeQueries, table: TableId, wanted: Decoding) -> LocalQuery | None:
    def run(records: DataFrame) -> DataFrame:
        return decode(records, wanted, ())

    return queries.query(table, wanted, run)


def test_a_query_is_planned_again_only_if_the_schema_changes(spark: SparkSession, tmp_path: Path) -> None:
    queries = DecodeQueries(spark, tmp_path / "state")
    get = partial(found, queries)
    first = get(ORDERS, decoding())
    assert first is not None
    assert get(ORDERS, decoding()) is first
    assert get(USERS, decoding()) is not first
    changed = get(ORDERS, decoding(3))
    assert changed is not None
    assert "c2" in changed.schema["after"].dataType.fieldNames()  # type: ignore[attr-defined]
    assert get(ORDERS, decoding(3)) is changed


def test_queries_that_were_used_longest_ago_are_removed_first(spark: SparkSession, tmp_path: Path) -> None:
    queries = DecodeQueries(spark, tmp_path, most_columns=7)
    orders, users = found(queries, ORDERS, decoding()), found(queries, USERS, decoding())
    assert found(queries, ORDERS, decoding()) is orders
    items = found(queries, ITEMS, decoding())
    assert found(queries, ORDERS, decoding()) is orders
    assert found(queries, ITEMS, decoding()) is items
    assert found(queries, USERS, decoding()) is not users


def test_a_query_above_the_limit_is_still_used(spark: SparkSession, tmp_path: Path) -> None:
    queries = DecodeQueries(spark, tmp_path, most_columns=1)
    first = found(queries, ORDERS, decoding())
    assert first is not None
    assert found(queries, ORDERS, decoding()) is first
