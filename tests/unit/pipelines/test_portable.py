"""Which queries DuckDB may answer in the place of Spark."""

import pytest

from replicator.pipelines.query.analysis import InputSchema, analyse
from replicator.pipelines.query.definition import parse_definition
from replicator.pipelines.query.names import TableName
from replicator.pipelines.query.plan import Plan, plan_of

ORDERS, CUSTOMERS = TableName("shop", "orders"), TableName("shop", "customers")
SCHEMAS = {
    ORDERS: InputSchema(
        {
            "id": "bigint",
            "customer": "int",
            "Status": "string",
            "price": "decimal(12,2)",
            "wide": "decimal(38,10)",
            "whole": "decimal(38,0)",
            "fine": "decimal(38,25)",
            "weight": "double",
            "day": "date",
            "at": "timestamp",
            "made": "timestamp_ntz",
            "paid": "boolean",
            "tags": "array<string>",
            "note": "binary",
        },
        ("id",),
    ),
    CUSTOMERS: InputSchema({"id": "int", "name": "string"}, ("id",)),
}


def planned(query: str, header: str = "") -> Plan:
    return plan_of(analyse(parse_definition(f"{header}{query}", "p", "p.sql", "p"), SCHEMAS))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT day, count(*) AS n, sum(price) AS s FROM shop.orders GROUP BY day",
        "SELECT id, price * 2 AS twice, price - 1.5 AS less FROM shop.orders WHERE status <> 'cancelled' AND NOT paid",
        "SELECT DISTINCT status, paid, day, at, made FROM shop.orders",
        (
            "SELECT status, min(day) AS first, count(DISTINCT customer) AS n FROM shop.orders GROUP BY "
            "status HAVING count(*) > 1"
        ),
        "SELECT id, wide, whole FROM shop.orders WHERE price < wide OR id < whole OR whole > 5 OR price > -1.5",
        "SELECT o.id, c.name FROM shop.orders o LEFT JOIN shop.customers c ON c.id = o.customer",
        (
            "SELECT day, id FROM (SELECT day, id, rank() OVER (PARTITION BY day ORDER BY price DESC) "
            "AS n FROM shop.orders) WHERE n = 1"
        ),
        (
            "SELECT id, CASE WHEN paid THEN price ELSE 0 END AS p FROM shop.orders WHERE customer IN "
            "(1, 2) OR id BETWEEN 1 AND 9"
        ),
        "SELECT id, CAST(price * 2 AS DECIMAL(20, 2)) AS p, CAST(customer AS BIGINT) AS c FROM shop.orders",
        "SELECT CAST(at AS DATE) AS d, CAST(made AS DATE) AS e, CAST(day AS DATE) AS f FROM shop.orders",
    ],
)
def test_what_both_define_alike_is_portable(query: str) -> None:
    plan = planned(query)

    assert [view for view, _ in plan.portable] == [step.view for step in plan.steps]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT status, avg(price) AS m FROM shop.orders GROUP BY status",
        "SELECT id, upper(status) AS s FROM shop.orders",
        "SELECT id, CAST(price AS INT) AS whole FROM shop.orders",
        "SELECT id, CAST(price AS DECIMAL(12, 1)) AS p FROM shop.orders",
        "SELECT id FROM shop.orders WHERE CAST(id AS DECIMAL) > 5",
        "SELECT id, CAST(status AS DATE) AS d FROM shop.orders",
        "SELECT id, CAST(day AS TIMESTAMP) AS t FROM shop.orders",
        "SELECT id, CAST(paid AS INT) AS n FROM shop.orders",
        "SELECT id, CAST(id AS STRING) AS n FROM shop.orders",
        "SELECT id, price / 2 AS half FROM shop.orders",
        "SELECT id, weight FROM shop.orders",
        "SELECT id, note FROM shop.orders",
        "SELECT id, tags FROM shop.orders",
        "SELECT id FROM shop.orders WHERE status LIKE 'new%'",
        "SELECT id FROM shop.orders WHERE customer = '5'",
        "SELECT id FROM shop.orders WHERE status IN ('new', 5)",
        "SELECT id FROM shop.orders WHERE day = '2026-01-01'",
        "SELECT id FROM shop.orders WHERE day = DATE '2026-01-01'",
        "SELECT id FROM shop.orders WHERE at < made",
        "SELECT id, coalesce(status, 0) AS s FROM shop.orders",
        "SELECT id, CASE WHEN paid THEN price ELSE status END AS s FROM shop.orders",
        "SELECT id, CASE status WHEN 'new' THEN 1 END AS s FROM shop.orders",
        "SELECT id, wide * wide AS w FROM shop.orders",
        "SELECT id FROM shop.orders WHERE wide = whole",
        "SELECT id, coalesce(wide, whole) AS w FROM shop.orders",
        "SELECT id FROM shop.orders WHERE id = fine",
        "SELECT id FROM shop.orders WHERE coalesce(fine, id) = 1",
        "SELECT id, if(paid, made, at) AS x FROM shop.orders",
        "SELECT id FROM shop.orders WHERE paid = paid IN (true, false)",
        "SELECT id FROM shop.orders WHERE price > 1e2",
        "SELECT id FROM shop.orders WHERE status = 'a\\\\b'",
        "SELECT id FROM shop.orders WHERE customer IN (SELECT id FROM shop.customers)",
        "SELECT day, id, sum(price) OVER (PARTITION BY day ORDER BY id) AS s FROM shop.orders",
        "SELECT day, count(DISTINCT customer, status) AS n FROM shop.orders GROUP BY day",
        (
            "SELECT id, status AS x FROM shop.orders UNION ALL SELECT id, name FROM (SELECT id, id AS "
            "name FROM shop.customers)"
        ),
    ],
)
def test_what_they_define_differently_is_left_to_spark(query: str) -> None:
    assert planned(query).portable == ()


def test_casts_that_are_impossible_fail() -> None:
    plan = planned("SELECT CAST(CAST(id AS INT) + 1 AS BIGINT) AS n FROM shop.orders")

    assert plan.portable
    assert not any("TRY_CAST" in query for _, query in plan.portable)


@pytest.mark.parametrize("header", ["-- expect paid: paid, drop\n", "-- expect paid: paid, warn\n"])
def test_spark_runs_the_checks(header: str) -> None:
    assert planned("SELECT id, paid FROM shop.orders", header).portable == ()
