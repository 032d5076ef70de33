"""The law of pipelines: the result that changes were applied to equals the query over the tables as they are now."""

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.errors import PipelineError
from replicator.pipelines.query.analysis import InputSchema, analyse
from replicator.pipelines.query.definition import parse_definition
from replicator.pipelines.query.names import TableName
from replicator.pipelines.query.plan import Plan, Rule, plan_of
from tests.support.law import law
from tests.support.pipeline_duckdb import DuckPipeline
from tests.support.pipeline_queries import SCHEMAS, Queries, Row, random_row
from tests.support.pipeline_shapes import SHAPES

REFRESHES = 2
SEEDS = 3


def planned(query: str) -> Plan:
    return plan_of(analyse(parse_definition(query, "law", "law.sql", "p"), SCHEMAS))


def first_tables(r: random.Random) -> dict[TableName, Counter[Row]]:
    return {name: Counter(random_row(r, name, key) for key in range(r.choice([0, 3, 8]))) for name in SCHEMAS}


def changed_tables(r: random.Random, tables: dict[TableName, Counter[Row]]) -> dict[TableName, Counter[Row]]:
    found = {name: Counter(rows) for name, rows in tables.items()}
    for name in SCHEMAS:
        if r.random() < 0.1:
            found[name].clear()
        for _ in range(r.choice([0, 0, 1, 2, 5])):
            key = r.randint(0, 9)
            rows = [row for row in found[name].elements() if not SCHEMAS[name].key or row[0] == key]
            if rows and r.random() < 0.9:
                found[name] -= Counter([r.choice(rows)])
            elif SCHEMAS[name].key and rows:
                continue
            if r.random() < 0.7:
                found[name][random_row(r, name, key)] += 1
    return found


def same(first: Sequence[Row], second: Sequence[Row]) -> bool:
    """Return whether both have the same rows as often, whatever their order; means may be rounded."""

    def order(row: Row) -> list[tuple[bool, bool, object]]:
        return [(v is None, isinstance(v, str), v if isinstance(v, str) else float(v or 0)) for v in row]  # type: ignore[arg-type]

    def equal(a: object, b: object) -> bool:
        if a is None or b is None or isinstance(a, str) or isinstance(b, str):
            return a == b
        return math.isclose(float(a), float(b), abs_tol=1e-6)  # type: ignore[arg-type]

    pairs = zip(sorted(first, key=order), sorted(second, key=order), strict=False)
    return len(first) == len(second) and all(all(map(equal, a, b)) for a, b in pairs)


def holds(text: str, seed: int, query: str | None = None) -> DuckPipeline:
    """Fail if the law does not hold for a pipeline and the changes of a seed; `query` is what it must give."""
    r = random.Random(seed)
    query = query or text
    pipeline = DuckPipeline(planned(text), narrows=r.random() < 0.7)
    tables = first_tables(r)
    pipeline.build(tables)
    assert same(pipeline.rows(), pipeline.expected(query)), query
    for _ in range(REFRESHES):
        later = changed_tables(r, tables)
        pipeline.refresh(tables, later)
        got, expected = pipeline.rows(), pipeline.expected(query)
        assert same(got, expected), (
            f"{query}\nby {pipeline.plan.rule}\n{sorted(map(str, got))}\n{sorted(map(str, expected))}"
        )
        tables = later
    return pipeline


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_of_query_is_maintained(shape: str) -> None:
    for seed in range(SEEDS):
        holds(SHAPES[shape], seed)


@pytest.mark.parametrize(
    ("shape", "condition"),
    [
        ("filter", "w > 3"),
        ("bag", "c <> 'p'"),
        ("sums", "n > 1"),
        ("lookup", "z IS NOT NULL"),
        ("union", "k > 1"),
    ],
)
def test_rows_that_a_check_drops_are_left_out(shape: str, condition: str) -> None:
    query = f"SELECT * FROM ({SHAPES[shape]}) AS q WHERE {condition}"
    for seed in range(SEEDS):
        holds(f"-- expect kept: {condition}, drop\n{SHAPES[shape]}", seed, query)


ONE = TableName("shop", "one")
STAGES = {
    "groups of sums": (
        "SELECT k, count(*) AS n, sum(v) AS s FROM shop.orders GROUP BY k",
        {"k": "int", "n": "bigint", "s": "bigint"},
        "SELECT n, count(*) AS g, sum(s) AS t FROM shop.one GROUP BY n",
    ),
    "copies": (
        "SELECT k, c FROM shop.log WHERE w IS NOT NULL",
        {"k": "int", "c": "string"},
        "SELECT c, count(*) AS n FROM shop.one GROUP BY c",
    ),
    "recomputed": (
        "SELECT o.id, o.v, k.z FROM shop.orders o LEFT JOIN shop.kinds k ON o.k = k.id",
        {"id": "int", "v": "int", "z": "smallint"},
        "SELECT z, max(v) AS m FROM shop.one GROUP BY z HAVING count(*) > 1",
    ),
    "joined": (
        "SELECT k, max(v) AS m FROM shop.orders GROUP BY k",
        {"k": "int", "m": "int"},
        "SELECT one.k, one.m, i.c FROM shop.one AS one JOIN shop.items i ON one.k = i.k",
    ),
}
"""The query of one pipeline, the columns of its result, and that of a second one over it."""


@pytest.mark.parametrize("stages", STAGES)
def test_pipelines_over_the_changes_of_results_are_maintained(stages: str) -> None:
    query, columns, over = STAGES[stages]
    schemas = {**SCHEMAS, ONE: InputSchema(columns)}
    expected = f"WITH one AS ({query}) {over.replace('shop.one', 'one')}"
    for seed in range(SEEDS):
        r = random.Random(seed)
        first = DuckPipeline(planned(query), narrows=True)
        plan = plan_of(analyse(parse_definition(over, "second", "second.sql", "p"), schemas))
        second = DuckPipeline(plan, narrows=r.random() < 0.7, schemas=schemas)
        tables = first_tables(r)
        first.build(tables)
        rows = Counter(first.rows())
        second.build({**tables, ONE: rows})
        for _ in range(REFRESHES):
            later, former = changed_tables(r, tables), rows
            first.refresh(tables, later)
            rows = Counter(first.rows())
            second.refresh({**tables, ONE: former}, {**later, ONE: rows})
            assert same(second.rows(), second.expected(expected)), (stages, seed)
            tables = later


LOG = TableName("shop", "log")
GROWING = {LOG: InputSchema(SCHEMAS[LOG].columns, is_log=True)}
OF_LOGS = {
    "extremes": "SELECT k, max(w) AS hi, min(c) AS lo, count(*) AS n, sum(w) AS s FROM shop.log GROUP BY k",
    "filtered": "SELECT c, max(w) FILTER (WHERE k > 1) - min(k) AS d FROM shop.log GROUP BY c",
    "one row": "SELECT max(w) AS hi, min(w) AS lo FROM shop.log",
    "self join": (
        "SELECT a.c, max(b.w) AS hi, min(a.w) AS lo FROM shop.log a JOIN shop.log b ON a.k = b.k GROUP BY a.c"
    ),
    "united": (
        "SELECT c, max(w) AS hi FROM (SELECT c, w FROM shop.log UNION ALL SELECT c, k FROM shop.log) AS u GROUP BY c"
    ),
}


@pytest.mark.parametrize("shape", OF_LOGS)
def test_extremes_of_log_tables_are_added(shape: str) -> None:
    query = OF_LOGS[shape]
    plan = plan_of(analyse(parse_definition(query, "law", "law.sql", "p"), GROWING))
    assert plan.rule is Rule.SIGNED
    for seed in range(4 * SEEDS):
        r = random.Random(seed)
        pipeline = DuckPipeline(plan, narrows=r.random() < 0.7, schemas=GROWING)
        rows = Counter(random_row(r, LOG, 0) for _ in range(r.choice([0, 1, 6])))
        pipeline.build({LOG: rows})
        for _ in range(2 * REFRESHES):
            later = rows + Counter(random_row(r, LOG, 0) for _ in range(r.choice([0, 1, 4])))
            pipeline.refresh({LOG: rows}, {LOG: later})
            assert same(pipeline.rows(), pipeline.expected(query)), (shape, seed)
            rows = later


@law(100)
@given(st.integers(0, 10**9))
def test_applied_changes_give_what_the_query_gives(seed: int) -> None:
    query = Queries(random.Random(seed)).query()
    try:
        planned(query)
    except PipelineError:
        return
    holds(query, seed)
