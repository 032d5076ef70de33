"""The order of pipelines."""

import pytest

from replicator.errors import PipelineError
from replicator.pipelines.query.definition import Definition, parse_definition
from replicator.pipelines.query.graph import in_order, reads
from replicator.pipelines.query.names import TableName


def pipeline(name: str, sql: str) -> Definition:
    return parse_definition(sql, name, f"{name}.sql", "p")


def order(*definitions: Definition) -> list[str]:
    return [definition.name for definition in in_order(definitions).definitions]


def test_each_pipeline_follows_those_that_it_reads() -> None:
    last = pipeline("a", "SELECT x FROM p.b JOIN marts.c USING (x)")
    middle = pipeline("b", "SELECT x FROM P.D WHERE EXISTS (SELECT 1 FROM marts.c)")
    first = pipeline("c", "-- table: marts.c\nSELECT x FROM shop.orders")
    other = pipeline("d", "SELECT x FROM shop.orders")
    found = order(last, middle, first, other)
    assert sorted(found) == ["a", "b", "c", "d"]
    assert found.index("a") == 3
    assert found.index("b") == 2


def test_a_pattern_may_name_results() -> None:
    assert order(pipeline("a", "SELECT x FROM p.`b_*`"), pipeline("b_1", "SELECT x FROM shop.o")) == [
        "b_1",
        "a",
    ]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1 FROM shop.orders", [("shop", "orders")]),
        (
            "SELECT 1 FROM shop.orders o JOIN shop_changes.orders c ON o.id = c.id",
            [("shop", "orders"), ("shop_changes", "orders")],
        ),
        ("SELECT 1 FROM `shop_*`.orders", [("shop_*", "orders")]),
        ("SELECT 1 FROM `shop_*.orders`", [("shop_*", "orders")]),
        ("WITH o AS (SELECT 1 FROM a.b) SELECT 1 FROM o, O AS p, a.b", [("a", "b")]),
        (
            "SELECT 1 FROM a.b WHERE x IN (SELECT y FROM c.d) UNION ALL SELECT 1 FROM e.f",
            [("a", "b"), ("e", "f"), ("c", "d")],
        ),
    ],
)
def test_inputs_are_the_tables_of_the_query(sql: str, expected: list[tuple[str, str]]) -> None:
    assert sorted(reads(pipeline("a", sql))) == sorted(TableName(*name) for name in expected)


@pytest.mark.parametrize("table", ["orders", "cat.shop.orders", "WRONG"])
def test_a_table_without_its_namespace_is_refused(table: str) -> None:
    with pytest.raises(PipelineError, match=r"a\.sql:2:\d+: .* is no table of the lake: NAMESPACE\.TABLE"):
        reads(pipeline("a", f"SELECT 1\nFROM {table}"))


def test_a_circle_stops_its_members_alone() -> None:
    definitions = [
        pipeline("a", "SELECT 1 AS x\nFROM p.b"),
        pipeline("b", "SELECT x FROM p.c"),
        pipeline("c", "SELECT x FROM p.a"),
        pipeline("d", "SELECT x FROM p.a"),
        pipeline("e", "SELECT x FROM shop.orders"),
    ]
    found = in_order(definitions)
    assert sorted(definition.name for definition in found.definitions) == ["d", "e"]
    expected = {
        "a": "a reads b reads c reads a",
        "b": "b reads c reads a reads b",
        "c": "c reads a reads b reads c",
    }
    assert {n: e.message.partition("circle: ")[2] for n, e in found.refused.items()} == expected
    assert found.refused["a"].message.startswith("a.sql:2:6: ")


def test_each_of_two_circles_is_named() -> None:
    pairs = (("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"), ("e", "a"))
    found = in_order([pipeline(a, f"SELECT x FROM p.{b}") for a, b in pairs])
    assert [definition.name for definition in found.definitions] == ["e"]
    assert sorted(found.refused) == ["a", "b", "c", "d"]


def test_a_pipeline_cannot_read_its_own_result() -> None:
    found = in_order([pipeline("a", "SELECT x\nFROM p.a")])
    assert found.refused["a"].message.startswith("a.sql:2:6: the pipeline a reads its own result")


def test_a_table_has_one_pipeline() -> None:
    definitions = [
        pipeline("a", "SELECT x FROM s.t"),
        pipeline("b", "-- key: x\n-- table: p.a\nSELECT x FROM s.t"),
        pipeline("c", "SELECT x FROM s.t"),
    ]
    found = in_order(definitions)
    assert [definition.name for definition in found.definitions] == ["c"]
    assert found.refused["b"].message == "b.sql:2: p.a is the result of a.sql too"
    assert found.refused["a"].message == "a.sql:1: p.a is the result of b.sql too"
