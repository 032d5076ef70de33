"""What DuckDB gives for the steps of a refresh is what Spark gives."""

import random
from collections import Counter
from decimal import Decimal
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from replicator.pipelines.query.analysis import analyse
from replicator.pipelines.query.definition import parse_definition
from replicator.pipelines.query.names import WEIGHT, TableName
from replicator.pipelines.query.plan import Plan, plan_of
from replicator.pipelines.refresh.driver import computed
from replicator.pipelines.refresh.views import Views
from tests.support.pipeline_queries import SCHEMAS
from tests.support.pipeline_shapes import SHAPES

Rows = Counter[tuple[object, ...]]

FURTHER = {
    "texts are ordered by their bytes": (
        "SELECT f, s, id, rank() OVER (PARTITION BY f ORDER BY s DESC, id) AS n FROM shop.orders WHERE s >= 'Z'"
    ),
    "extremes": "SELECT k, min(s) AS lo, max(s) AS hi, max(d) AS m, min(f) AS f FROM shop.orders GROUP BY k",
    "products": "SELECT s, sum(d * v) AS t, sum(d - v) AS u, sum(v * v) AS w FROM shop.orders GROUP BY s",
    "casts": (
        "SELECT id, CAST(d * v AS DECIMAL(24, 4)) AS e, CAST(v AS DECIMAL(12, 2)) AS f, CAST(k AS BIGINT) AS g "
        "FROM shop.orders WHERE CAST(k AS DECIMAL(10, 1)) > d"
    ),
    "choices": (
        "SELECT id, CASE WHEN d > 1 THEN d WHEN v IS NULL THEN 0 END AS c, coalesce(s, 'none') AS s, d + k AS e "
        "FROM shop.orders WHERE k BETWEEN 1 AND 3 OR v IN (1, 2) OR f"
    ),
}
VALUES: dict[str, list[object]] = {
    "int": [0, 1, 2, 3, -4, 30_000],
    "bigint": [0, 1, 2, 3, -(1 << 40)],
    "smallint": [0, 1, 2, 3, -32768],
    "string": ["", "p", "P", "q ", " q", "ä", "Z", "ÿ", "😀", "\uffee", "a\x00b", "nul\\l"],
    "boolean": [True, False],
    "decimal(10,2)": [Decimal("0.00"), Decimal("-0.01"), Decimal("1.10"), Decimal("99999999.99")],
}


def planned(query: str) -> Plan:
    return plan_of(analyse(parse_definition(query, "p", "p.sql", "p"), SCHEMAS))


def random_rows(r: random.Random, name: TableName, keys: range) -> Rows:
    def row(key: int) -> tuple[object, ...]:
        return tuple(
            key if column in SCHEMAS[name].key else r.choice([None, *VALUES[kind]])
            for column, kind in SCHEMAS[name].columns.items()
        )

    return Counter(row(key) for key in keys)


def as_table(name: TableName, rows: Rows, *, weighted: bool = False) -> pa.Table:
    """Return rows as often as they are there; of changes, each with the sign of how often."""
    types = ", ".join(f"`{column}` {kind}" for column, kind in SCHEMAS[name].columns.items())
    kind = StructType.fromDDL(types + (f", `{WEIGHT}` int" if weighted else ""))
    schema = to_arrow_schema(cast("StructType", kind))
    found = [
        (*row, *([1 if times > 0 else -1] if weighted else []))
        for row, times in rows.items()
        for _ in range(abs(times))
    ]
    return pa.table(
        [pa.array([row[n] for row in found], f.type) for n, f in enumerate(schema)], schema=schema
    )


def counted(rows: pa.Table) -> Rows:
    return Counter(tuple(map(str, row.values())) for row in rows.to_pylist())


@pytest.mark.parametrize(
    "shape", [name for name in (*SHAPES, *FURTHER) if planned((SHAPES | FURTHER)[name]).portable]
)
def test_duckdb_gives_what_spark_gives(spark: SparkSession, shape: str) -> None:
    plan, r = planned((SHAPES | FURTHER)[shape]), random.Random(shape)
    before = {name: random_rows(r, name, range(12)) for name in SCHEMAS}
    now = {name: random_rows(r, name, range(4, 15)) for name in SCHEMAS}
    changes = {name: Counter(now[name]) for name in now}
    for name, rows in before.items():
        changes[name].subtract(rows)
    held: dict[str, pa.Table] = {}
    views = Views(spark)
    try:
        for used in plan.inputs:
            views.add(used.now, spark.createDataFrame(as_table(used.name, before[used.name])))
        held[plan.output] = views.query(plan.full).toArrow()
        for used in plan.inputs:
            held[used.now] = as_table(used.name, now[used.name])
            held[used.changed] = as_table(used.name, changes[used.name], weighted=True)
        for view, rows in held.items():
            views.add(view, spark.createDataFrame(rows), rows)
        views.run(plan.steps, None)
        expected = views.frames[plan.changes].toArrow()
    finally:
        views.drop()

    found = computed(plan.portable, held, expected.schema)

    assert found is not None
    assert counted(found) == counted(expected)
    assert expected.num_rows
