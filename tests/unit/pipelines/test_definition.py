"""Pipeline files: what their header means, and what is said of those that cannot be used."""

from pathlib import Path

import pytest

from replicator.errors import PipelineError
from replicator.model.partitioning import PartitionField
from replicator.pipelines.query.definition import (
    Action,
    Definition,
    Expectation,
    Refresh,
    parse_definition,
    read_definition,
)
from replicator.pipelines.query.names import TableName

SELECT = "SELECT day, sum(amount) AS revenue FROM shop.orders GROUP BY day"


def parsed(text: str, name: str = "revenue") -> Definition:
    return parse_definition(text, name, f"pipelines/{name}.sql", "shop_pipelines")


def refused(text: str, name: str = "revenue") -> PipelineError:
    with pytest.raises(PipelineError) as found:
        parsed(text, name)
    return found.value


def test_a_file_needs_no_header() -> None:
    definition = parsed(SELECT)
    assert definition.table == TableName("shop_pipelines", "revenue")
    assert definition.refresh is Refresh.INCREMENTAL
    assert (definition.key, definition.partition, definition.every, definition.expectations) == (
        (),
        (),
        None,
        (),
    )
    assert not definition.changelog


def test_the_header_says_what_the_result_is() -> None:
    definition = parsed(
        "\n".join(
            [
                "-- Revenue, as the board wants to see it",
                "-- table: marts.revenue_by_day",
                "-- key: day, `größe`",
                "--refresh: auto",
                "-- every: 10 seconds",
                "",
                "-- partition: days(day), bucket(16, size)",
                "-- description: Money: how much, by day",
                "-- changelog: true",
                "-- expect positive: coalesce(revenue, 0) >= 0, drop",
                "-- expect known: day IS NOT NULL, fail",
                f"{SELECT} -- key: this is no header",
            ]
        )
    )
    assert definition.table == TableName("marts", "revenue_by_day")
    assert definition.key == ("day", "größe")
    assert (definition.refresh, definition.every, definition.changelog) == (Refresh.AUTO, 10.0, True)
    assert definition.partition == (PartitionField("days", "day"), PartitionField("bucket", "size", 16))
    assert definition.description == "Money: how much, by day"
    assert definition.expectations == (
        Expectation("positive", "coalesce(revenue, 0) >= 0", Action.DROP, 10),
        Expectation("known", "day IS NOT NULL", Action.FAIL, 11),
    )


@pytest.mark.parametrize(
    ("header", "place", "reason"),
    [
        ("-- kye: day", "1:4", 'kye: unknown key; did you mean "key"?'),
        ("-- KEY: day", "1:4", 'KEY: unknown key; did you mean "key"?'),
        ("-- expectation: day", "1:4", 'expectation: unknown key; did you mean "expect"?'),
        ("-- key: day\n-- key: day", "2:4", "key: is given twice, first in line 1"),
        ("-- key: day, Day", "1:4", "key: names a column twice"),
        ("-- key:", "1:4", 'key: "" are not columns'),
        ("-- table: revenue", "1:4", 'table: "revenue" is not a table; write NAMESPACE.NAME'),
        ("-- refresh: sometimes", "1:4", "refresh: must be one of incremental, auto, full"),
        ("-- every: soon", "1:4", 'every: "soon" is not a duration'),
        ("-- partition: dayz(day)", "1:4", 'partition: "dayz(day)": unknown transform "dayz"'),
        ("-- changelog: yes", "1:4", 'changelog: must be true or false, not "yes"'),
        ("-- description:", "1:4", "description: has no text"),
        (
            "-- expect a: revenue > 1",
            "1:4",
            "expect a: must end with what is done: , warn, or , drop, or , fail",
        ),
        ("-- expect a: revenue >, warn", "1:4", 'expect a: "revenue >" is not a condition'),
        ("-- expect a: , warn", "1:4", 'expect a: "" is not a condition'),
        ("-- expect a: 1) UNION (SELECT 1, warn", "1:4", "expect a: "),
        ("-- expect a: x, warn\n-- expect a: y, warn", "2:4", "expect a: is given twice, first in line 1"),
    ],
)
def test_a_wrong_header_is_refused_with_its_place(header: str, place: str, reason: str) -> None:
    error = refused(f"{header}\n{SELECT}")
    assert error.message.startswith(f"pipelines/revenue.sql:{place}: {reason}")
    assert error.hint == f"edit line {place[0]} of pipelines/revenue.sql"


@pytest.mark.parametrize(
    ("sql", "place", "reason"),
    [
        ("", "1", "has no SELECT"),
        ("-- key: day\n", "1", "has no SELECT"),
        ("SELECT a b c FROM s.t", "1:12", 'not valid SQL at "c"'),
        ("SELECT a\nFROM s.t\nWERE x = 1", "3:6", 'not valid SQL at "x"'),
        ("SELECT (a\nFROM s.t", "2:1", 'not valid SQL at "FROM": expecting )'),
        ("SELECT a FROM s.t WHERE", "1:19", 'not valid SQL at "WHERE"'),
        ("SELECT 'a\nFROM s.t", "2", "not valid SQL: a quote or a comment is not closed"),
        ("-- key: a\nINSERT INTO s.u SELECT 1", "2:1", "INSERT is not a SELECT"),
        ("DROP TABLE s.t", "1:1", "DROP is not a SELECT"),
        (
            "SELECT 1 AS a FROM s.t;\n\nSELECT 2 AS a FROM s.t",
            "3",
            "a second statement; a pipeline is one SELECT",
        ),
    ],
)
def test_what_is_not_one_select_is_refused_with_its_place(sql: str, place: str, reason: str) -> None:
    error = refused(sql)
    assert error.message.startswith(f"pipelines/revenue.sql:{place}: {reason}")
    assert error.hint


def test_a_statement_may_end_with_a_semicolon() -> None:
    assert parsed(f"{SELECT};\n").query == parsed(SELECT).query


def test_the_name_of_a_file_is_that_of_a_table() -> None:
    assert '"Re-Venue" is not a name of a pipeline' in refused(SELECT, "Re-Venue").message


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "revenue.sql").write_text(f"-- key: day\n{SELECT}", encoding="utf-8")
    definition = read_definition(
        tmp_path / "revenue.sql", "pipelines/revenue.sql", "shop_pipelines", parse_definition
    )
    assert (definition.name, definition.file, definition.key) == (
        "revenue",
        "pipelines/revenue.sql",
        ("day",),
    )


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="cannot be read: No such file"):
        read_definition(tmp_path / "none.sql", "none.sql", "p", parse_definition)
    (tmp_path / "binary.sql").write_bytes(b"\xff\xfe")
    with pytest.raises(PipelineError, match="cannot be read: it is not UTF-8"):
        read_definition(tmp_path / "binary.sql", "binary.sql", "p", parse_definition)


def test_errors_in_the_header_and_in_the_query_tell_their_line() -> None:
    definition = parsed(
        "-- key: day\n-- expect a: revenue > 1, warn\nSELECT day,\n  revenue FROM shop.orders"
    )
    assert definition.header_error("key", "x").message == "pipelines/revenue.sql:1: x"
    assert definition.header_error("expect a", "x").message == "pipelines/revenue.sql:2: x"
    assert definition.error(definition.query.selects[1], "x").message == "pipelines/revenue.sql:4:3: x"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELECT id FROM shop.orders WHER id > 3", "did you mean WHERE instead of WHER?"),
        ("SELECT status FROM shop.orders GRUOP BY status", "did you mean GROUP instead of GRUOP?"),
        ("SELECT id status FORM shop.orders", "did you mean FROM instead of FORM?"),
        (
            "key: status\nSELECT status FROM shop.orders",
            "write the lines of the header as comments: -- key: status",
        ),
        ("SELECT count(* AS n FROM shop.orders", "edit line 1 of a.sql"),
    ],
)
def test_likely_mistakes_are_named(text: str, hint: str) -> None:
    with pytest.raises(PipelineError) as error:
        parse_definition(text, "a", "a.sql", "p")
    assert error.value.hint == hint
