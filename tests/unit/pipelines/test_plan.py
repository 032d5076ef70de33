"""By which rule a result is brought up to date, what is refused, and what a refresh reads."""

import pytest

from replicator.errors import PipelineError
from replicator.pipelines.query.analysis import InputSchema, analyse
from replicator.pipelines.query.definition import Action, parse_definition
from replicator.pipelines.query.explain import explained
from replicator.pipelines.query.names import TableName
from replicator.pipelines.query.narrow import Narrow
from replicator.pipelines.query.plan import Plan, Rule, plan_of
from tests.support.pipeline_duckdb import duck
from tests.support.pipeline_queries import SCHEMAS
from tests.support.pipeline_shapes import SHAPES

SIGNED = {
    "filter",
    "bag",
    "union all",
    "inner joins",
    "inequality",
    "cross join",
    "self join",
    "sums",
    "flags",
    "expressions",
    "filtered",
    "one row",
    "joined sums",
    "distinct",
    "sum of parts",
    "stages",
}


def planned(sql: str, schemas: dict[TableName, InputSchema] | None = None) -> Plan:
    return plan_of(analyse(parse_definition(sql, "p", "p.sql", "p"), schemas or SCHEMAS))


def refused(sql: str) -> PipelineError:
    with pytest.raises(PipelineError) as found:
        planned(sql)
    return found.value


@pytest.mark.parametrize("shape", SHAPES)
def test_changes_are_added_where_that_is_possible(shape: str) -> None:
    plan = planned(SHAPES[shape])
    assert plan.rule is (Rule.SIGNED if shape in SIGNED else Rule.AFFECTED)
    assert (plan.reason is None) == (plan.rule is Rule.SIGNED)
    assert bool(plan.unit) == (plan.rule is Rule.AFFECTED)


@pytest.mark.parametrize(
    ("sql", "place", "reason"),
    [
        ("SELECT id FROM shop.orders LIMIT 3", "1:34", "LIMIT is not maintained"),
        ("SELECT id FROM shop.orders ORDER BY v", "1:37", "ORDER BY has no meaning for a table"),
        ("SELECT max(v) AS m FROM shop.orders", "1:8", "changes tell no part of the result that they touch"),
        ("SELECT id, rank() OVER (ORDER BY v) AS r FROM shop.orders", "1:8", "changes tell no part"),
        ("SELECT id FROM shop.orders EXCEPT SELECT id FROM shop.items", "1:8", "EXCEPT is not maintained"),
        (
            ("SELECT id FROM shop.orders WHERE k NOT IN (SELECT k FROM shop.log)"),
            "1:34",
            "NOT IN with a subquery",
        ),
        (
            ("SELECT id FROM shop.orders WHERE v = (SELECT max(w) AS m FROM shop.items)"),
            "1:34",
            "a subquery is maintained only as EXISTS",
        ),
        (
            ("SELECT id, (SELECT max(w) AS m FROM shop.items) AS m FROM shop.orders"),
            "1:",
            "a subquery as a value",
        ),
        (
            ("SELECT id FROM shop.orders WHERE v > 1 OR EXISTS (SELECT 1 FROM shop.items)"),
            "1:34",
            "a subquery is maintained only as EXISTS",
        ),
        (
            ("SELECT k, collect_list(v) AS l FROM shop.orders GROUP BY k"),
            "1:11",
            "collect_list() depends on the order of rows",
        ),
        (
            ("SELECT k, first(v) AS l FROM shop.orders GROUP BY k"),
            "1:11",
            "first() depends on the order of rows",
        ),
        ("SELECT k, try_sum(v) AS l FROM shop.orders GROUP BY k", "1:11", "try_sum() is not maintained"),
        ("SELECT k, min(v) AS l FROM shop.orders GROUP BY CUBE (k)", "1:", "CUBE, ROLLUP and GROUPING SETS"),
        (
            (
                "SELECT o.s, i.c, min(o.v) AS m FROM shop.orders o JOIN "
                "shop.items i ON o.k < i.k GROUP BY o.s, i.c"
            ),
            "1:8",
            "i and o are not joined by equal columns",
        ),
        (
            (
                "SELECT o.id, k.z FROM shop.orders o LEFT JOIN shop.items i ON o.id = "
                "i.id LEFT JOIN shop.kinds k ON coalesce(i.c, 'p') = k.c"
            ),
            "1:8",
            "k and o are not joined by equal columns",
        ),
        (
            (
                "SELECT o.id, k.z FROM shop.orders o LEFT JOIN shop.items i ON "
                "o.id = i.id LEFT JOIN shop.kinds k ON i.c <=> k.c"
            ),
            "1:8",
            "k and o are not joined by equal columns",
        ),
        (
            ("SELECT o.id, t.x FROM shop.orders o LATERAL VIEW explode(array(o.v)) t AS x"),
            "1:",
            "LATERAL VIEW is not maintained",
        ),
        ("SELECT id FROM shop.orders TABLESAMPLE (10 PERCENT)", "1:", "TABLESAMPLE reads other rows"),
    ],
)
def test_what_cannot_be_maintained_is_refused_with_its_place(sql: str, place: str, reason: str) -> None:
    error = refused(sql)
    assert error.message.startswith(f"p.sql:{place}")
    assert reason in error.message
    assert error.hint


def test_auto_and_full_compute_the_whole_result_instead() -> None:
    sql = "SELECT max(v) AS m FROM shop.orders"
    plan = planned(f"-- refresh: auto\n{sql}")
    assert (plan.rule, plan.steps, plan.changes) == (Rule.FULL, (), "")
    assert plan.reason is not None
    assert plan.reason.startswith("p.sql:2:8: cannot be maintained incrementally: changes tell no part")
    plan = planned("-- refresh: full\nSELECT id FROM shop.orders")
    assert (plan.rule, plan.reason) == (Rule.FULL, "the file says refresh: full")
    assert planned("-- refresh: auto\nSELECT id FROM shop.orders").rule is Rule.SIGNED


def test_an_input_without_changelog_is_only_read_as_a_whole() -> None:
    schemas = {TableName("shop", "orders"): InputSchema({"id": "int"}, ("id",), has_changelog=False)}
    with pytest.raises(PipelineError) as found:
        planned("SELECT id\nFROM shop.orders", schemas)
    assert (
        found.value.message == "p.sql:2:6: cannot be maintained incrementally: shop.orders has no changelog"
    )
    assert found.value.hint is not None
    assert found.value.hint.startswith("write changelog = true in the [[table]] of orders")
    assert planned("-- refresh: auto\nSELECT id FROM shop.orders", schemas).rule is Rule.FULL


LOGS = {**SCHEMAS, TableName("logs", "clicks"): InputSchema({"id": "int", "at": "timestamp"}, is_log=True)}


@pytest.mark.parametrize(
    ("header", "sql", "message"),
    [
        ("", "SELECT id FROM shop.orders", "p.sql:2: keep_expired: no log table is read"),
        (
            "-- refresh: auto\n",
            "SELECT id FROM logs.clicks",
            "p.sql:2: keep_expired needs refresh: incremental: the whole is computed of the rows that are left",
        ),
        (
            "",
            "SELECT id, count(DISTINCT at) AS n FROM logs.clicks GROUP BY id",
            (
                "p.sql:3:12: expired rows cannot be kept: changes cannot be added because of count() of distinct or "
                "several values, which cannot be subtracted"
            ),
        ),
        (
            "",
            "SELECT o.k, max(c.at) AS last FROM logs.clicks c JOIN shop.orders o ON o.id = c.id GROUP BY o.k",
            (
                "p.sql:3:13: expired rows cannot be kept: changes cannot be added because of max(), which cannot be "
                "subtracted"
            ),
        ),
    ],
)
def test_expired_rows_are_kept_only_where_changes_are_added(header: str, sql: str, message: str) -> None:
    with pytest.raises(PipelineError) as found:
        planned(f"{header or '-- description: x' + chr(10)}-- keep_expired: true\n{sql}", LOGS)
    assert found.value.message == message
    assert found.value.hint == "leave keep_expired out of the header"


def test_plans_of_log_tables() -> None:
    plan = planned("-- keep_expired: true\nSELECT id, max(at) AS last FROM logs.clicks GROUP BY id", LOGS)
    assert (plan.rule, plan.reason) == (Rule.SIGNED, None)
    assert "  rows that are deleted from a log table stay in the result" in explained(plan)
    joined = "SELECT o.k, max(c.at) AS last FROM logs.clicks c JOIN shop.orders o ON o.id = c.id GROUP BY o.k"
    assert planned(joined, LOGS).rule is Rule.AFFECTED
    buckets = (
        "SELECT timestamp_seconds(unix_seconds(at) - unix_seconds(at) % 900) AS bucket, count(*) AS n "
        "FROM logs.clicks GROUP BY timestamp_seconds(unix_seconds(at) - unix_seconds(at) % 900)"
    )
    assert planned(buckets, LOGS).rule is Rule.SIGNED


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (
            "SELECT k, sum(CAST(v AS DOUBLE)) AS s FROM shop.orders GROUP BY k",
            "sum() of numbers that are not exact",
        ),
        (
            "SELECT k, avg(CAST(v AS DECIMAL(30, 4))) AS s FROM shop.orders GROUP BY k",
            "avg() of numbers with too many digits",
        ),
        (
            "SELECT k, sum(CAST(v AS DECIMAL(28, 2))) AS s FROM shop.orders GROUP BY k",
            "sum() of numbers with too many digits",
        ),
        (
            "SELECT k, count(DISTINCT v) AS s FROM shop.orders GROUP BY k",
            "count() of distinct or several values",
        ),
        ("SELECT k, max(v) AS s FROM shop.orders GROUP BY k", "max(), which cannot be subtracted"),
        ("SELECT k, sum(v) AS s FROM shop.orders GROUP BY k HAVING sum(v) > 1", "HAVING"),
        (
            "-- expect a: s > 1, drop\nSELECT k, sum(v) AS s FROM shop.orders GROUP BY k",
            "a check that drops groups",
        ),
        (
            "SELECT o.id, k.z FROM shop.orders o LEFT JOIN shop.kinds k ON o.k = k.id",
            "an outer, semi or anti join",
        ),
    ],
)
def test_a_plan_says_why_changes_cannot_be_added(sql: str, reason: str) -> None:
    plan = planned(sql)
    assert plan.rule is Rule.AFFECTED
    assert plan.reason is not None
    assert reason in plan.reason


def test_sums_of_exact_numbers_that_a_subquery_passes_on_can_be_subtracted() -> None:
    sql = (
        "WITH p AS (SELECT s, CAST(v AS BIGINT) * 2 AS x FROM "
        "shop.orders) SELECT s, sum(x) AS t FROM p GROUP BY s"
    )
    assert planned(sql).rule is Rule.SIGNED


def narrows(plan: Plan, view: str) -> set[tuple[str, str, str]]:
    return {
        (narrow.column, narrow.by.removeprefix("p__"), narrow.by_column)
        for step in plan.steps
        if step.view == f"p__{view}"
        for narrow in step.narrow
    }


def test_a_lookup_reads_only_the_rows_that_it_needs() -> None:
    plan = planned(
        "SELECT o.id, i.c, k.z FROM shop.orders o LEFT JOIN shop.items i "
        "ON o.k = i.id LEFT JOIN shop.kinds k ON i.c = k.c"
    )
    assert plan.unit == ("id",)
    assert narrows(plan, "affected1") == {("k", "in1_changed", "id")}
    # A kind → the items of it, before or after the changes → the orders of these.
    assert narrows(plan, "affected2") == {("c", "in2_changed", "c"), ("k", "keys0", "id")}
    assert narrows(plan, "rows") == {("id", "affected", "id"), ("id", "keys1", "k"), ("c", "keys2", "c")}
    assert narrows(plan, "old") == {("id", "affected", "id")}


def test_a_group_reads_only_its_rows() -> None:
    plan = planned("SELECT t.k, t.m FROM (SELECT k, max(v) AS m FROM shop.orders GROUP BY k) t WHERE t.m > 1")
    assert narrows(plan, "rows") == {("k", "affected", "k")}


@pytest.mark.parametrize(
    "sql",
    [
        # The rows of the optional side that are not found must stay so.
        "SELECT i.c, max(o.v) AS m FROM shop.orders o LEFT JOIN shop.items i ON o.k = i.k GROUP BY i.c",
        (
            "SELECT o.s, i.c, max(o.v) AS m FROM shop.orders o FULL JOIN "
            "shop.items i ON o.k = i.k GROUP BY o.s, i.c"
        ),
        # Of a table that is read twice, other rows may be needed in the other place.
        "SELECT a.k, max(b.v) AS m FROM shop.orders a JOIN shop.orders b ON a.k = b.v GROUP BY a.k",
    ],
)
def test_inputs_that_cannot_be_narrowed_are_read_as_a_whole(sql: str) -> None:
    assert narrows(planned(sql), "rows") - {("k", "keys0", "k")} == set()


def test_changes_of_a_sum_read_its_group_and_the_joined_rows_only() -> None:
    plan = planned("SELECT i.c, sum(o.v) AS s FROM shop.orders o JOIN shop.items i ON o.k = i.k GROUP BY i.c")
    assert narrows(plan, "part0") == {("k", "in0_changed", "k")}
    assert narrows(plan, "part1") == {("k", "in1_changed", "k")}
    assert Narrow("p__output", "c", "p__delta", "_k0") in plan.steps[-1].narrow
    assert not any("p__in0_now" in step.sql for step in planned(SHAPES["sums"]).steps)


def test_dropped_rows_are_left_out_of_the_result_and_can_be_counted() -> None:
    plan = planned("-- expect big: v > 1, drop\n-- expect some: id > 0, warn\nSELECT id, v FROM shop.orders")
    assert [(check.name, check.action) for check in plan.checks] == [
        ("big", Action.DROP),
        ("some", Action.WARN),
    ]
    assert plan.steps[-1].view == plan.changes
    assert plan.steps[-2].view == plan.checked
    assert "COALESCE((v > 1), FALSE)" in plan.steps[-1].sql
    assert "COALESCE((v > 1), FALSE)" in plan.full
    assert "COALESCE" not in plan.full_unchecked


@pytest.mark.parametrize("name", ["_weight", "_State"])
def test_names_of_hidden_columns_are_refused(name: str) -> None:
    assert (
        f"{name} is the name of a hidden column" in refused(f"SELECT id AS {name} FROM shop.orders").message
    )
    with pytest.raises(PipelineError, match="is the name of a hidden column"):
        planned(
            "SELECT id FROM s.t WHERE _weight > 1",
            {TableName("s", "t"): InputSchema({"id": "int", "_weight": "int"})},
        )


def test_names_keep_their_spelling() -> None:
    plan = planned("-- key: OrderId\nSELECT ID AS orderId, sum(V) AS `Größe` FROM shop.orders GROUP BY ID")
    assert plan.columns == ("orderId", "Größe")
    assert plan.key == ("orderId",)
    assert "`orderId`" in plan.full


@pytest.mark.parametrize(
    "other",
    [
        "SELECT k, sum(v) AS t FROM shop.orders GROUP BY k",
        "SELECT k, sum(v + 1) AS s FROM shop.orders GROUP BY k",
        "SELECT k, sum(v) AS s FROM shop.orders WHERE v > 1 GROUP BY k",
        "SELECT k, sum(v) AS s FROM `shop`.`order?` GROUP BY k",
        "-- key: k\nSELECT k, sum(v) AS s FROM shop.orders GROUP BY k",
        "-- refresh: full\nSELECT k, sum(v) AS s FROM shop.orders GROUP BY k",
        "-- expect a: s > 1, drop\nSELECT k, sum(v) AS s FROM shop.orders GROUP BY k",
    ],
)
def test_another_definition_has_another_fingerprint(other: str) -> None:
    assert (
        planned(other).fingerprint != planned("SELECT k, sum(v) AS s FROM shop.orders GROUP BY k").fingerprint
    )


@pytest.mark.parametrize(
    "other",
    [
        (
            "-- description: By k\n-- every: 10 s\nSELECT K, -- the "
            "key\n  SUM(v) AS s\nFROM Shop.Orders GROUP BY 1;"
        ),
        (
            "-- expect a: s > 1, warn\nSELECT o.k, sum(o.v) s FROM "
            "shop.orders AS orders, shop.orders o GROUP BY k"
        ),
    ][:1],
)
def test_layout_and_comments_do_not_change_the_fingerprint(other: str) -> None:
    assert (
        planned(other).fingerprint == planned("SELECT k, sum(v) AS s FROM shop.orders GROUP BY k").fingerprint
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_every_plan_is_explained(shape: str) -> None:
    lines = explained(planned(SHAPES[shape]))
    assert lines[0] == "reads"
    assert any(line.startswith("kept current by: ") for line in lines)


def test_an_explanation_tells_what_a_refresh_reads() -> None:
    sums = explained(planned("SELECT k, sum(v) AS s FROM shop.orders GROUP BY k"))
    assert sums == [
        "reads",
        "  shop.orders: k, v",
        "kept current by: signed, changes are added",
        "  the result has a hidden column _state: the numbers to which changes are added",
        "identified by: all columns; rows may be there twice",
        "a refresh reads",
        "  shop.orders: its changes",
        "  the result: rows by k",
        "computed by: DuckDB if the rows are few, without a Spark job; else Spark",
    ]
    lookup = explained(
        planned(
            "-- key: id\n-- expect a: z > 1, warn\nSELECT o.id, k.z FROM "
            "shop.orders o LEFT JOIN shop.kinds k ON o.k = k.id"
        )
    )
    assert lookup == [
        "reads",
        "  shop.orders: id, k",
        "  shop.kinds: id, z",
        "kept current by: affected, rows that changes touch are recomputed",
        "  recomputed: the rows with the id that changes touch",
        "  why not cheaper: changes cannot be added because of an outer, semi or anti join (p.sql:3:52)",
        "identified by: id",
        "a refresh reads",
        "  shop.orders: its changes, and rows by k or id",
        "  shop.kinds: its changes, and rows by id",
        "  the result: rows by id",
        "computed by: Spark",
        "checks",
        "  a: z > 1, warn",
    ]


def test_a_full_refresh_reads_all_rows() -> None:
    assert "  shop.orders: all rows" in explained(planned("-- refresh: full\nSELECT id FROM shop.orders"))
    rows = explained(
        planned(
            "SELECT i.c, max(o.v) AS m FROM shop.orders o LEFT JOIN shop.items i ON o.k = i.k GROUP BY i.c"
        )
    )
    assert "  shop.orders: its changes, and all rows" in rows


def test_sql_is_that_of_spark() -> None:
    plan = planned(SHAPES["lookup"])
    assert "LEFT SEMI JOIN" in plan.steps[-3].sql
    assert "<=>" in plan.steps[-3].sql
    assert duck(plan.steps[-3].sql) != plan.steps[-3].sql
