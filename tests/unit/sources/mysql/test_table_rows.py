"""The statements that read a table in parts."""

from typing import Any

import pytest

from replicator.errors import SourceError, UsageError
from replicator.model.reread import KeySpan, Narrowed
from replicator.model.table import TableId
from replicator.schema.types.table import KeyKind, Wire
from replicator.sources.mysql.table_rows import KeyColumn, SourceTable, _column, key_range

ID = KeyColumn("id", "CAST(`id` AS CHAR)", KeyKind.NUMBER)
NAME = KeyColumn("na`me", "HEX(CONVERT(`na``me` USING utf8mb4))", KeyKind.TEXT)


def row(kind: str, whole: str = "", **values: Any) -> dict[str, object]:
    """Return a row of information_schema.columns."""
    empty = dict.fromkeys(("charset", "digits", "scale", "fraction", "size", "octets"))
    return {"name": "c", "kind": kind, "whole": whole or kind, "nullable": "YES", **empty, **values}


def table(*key: KeyColumn) -> SourceTable:
    columns = (_column(row("int", name="id")), _column(row("varchar", charset="utf8mb4", name="na`me")))
    return SourceTable(TableId("shop", "or`ders"), columns, key, 10, 100, 200)


def test_key_range_of_two_columns_compares_them_in_order() -> None:
    assert key_range(["k0", "k1"], [ID, NAME], ("5", "61"), ("9", "")) == (
        "k0 >= 5 AND ((k0 > 5) OR (k0 = 5 AND k1 > _utf8mb4 x'61')) AND "
        "k0 <= 9 AND ((k0 < 9) OR (k0 = 9 AND k1 <= _utf8mb4 x''))"
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (KeyKind.NUMBER, "1 OR 1=1"),
        (KeyKind.NUMBER, ""),
        (KeyKind.TIME, "2024-01-01'"),
        (KeyKind.TEXT, "6"),
        (KeyKind.TEXT, "zz"),
        (KeyKind.BYTES, "00' OR '1"),
    ],
)
def test_literal_refuses_what_is_not_a_value(kind: KeyKind, value: str) -> None:
    with pytest.raises(ValueError, match="not a value of the key column"):
        KeyColumn("k", "k", kind).literal(value)


def test_queries_quote_every_name() -> None:
    found = table(ID, NAME)
    assert found.boundary_query(("1", "61"), ("9", "62"), 100).startswith(
        "SELECT CAST(`id` AS CHAR), HEX(CONVERT(`na``me` USING utf8mb4)) FROM `shop`.`or``ders` WHERE `id` >= 1 AND "
    )
    assert found.boundary_query(None, ("9", "62"), 100).endswith("ORDER BY `id`, `na``me` LIMIT 1 OFFSET 99")
    assert found.last_query.endswith("ORDER BY `id` DESC, `na``me` DESC LIMIT 1")
    assert found.rows_query(found.columns) == (
        "SELECT CAST(`id` AS SIGNED) AS c0, CONVERT(`na``me` USING utf8mb4) AS c1, `id` AS k0, `na``me` AS k1 "
        "FROM `shop`.`or``ders`"
    )


def test_a_part_of_a_table_is_divided_by_its_own_rows() -> None:
    found = table(ID, NAME).part(Narrowed("id", (KeySpan(-5, 7, 3), KeySpan(9, 9, 4))))
    part = "(`id` BETWEEN -5 AND 7 OR `id` BETWEEN 9 AND 9)"
    assert found.rows == 7
    assert f"WHERE TRUE AND {part} ORDER BY `id` DESC" in found.last_query
    assert f" AND {part} ORDER BY `id`, `na``me` LIMIT 1 OFFSET 1" in found.boundary_query(
        None, ("9", "62"), 2
    )
    assert found.range_condition(["k0", "k1"], None, None) == f"TRUE AND {part.replace('`id`', 'k0')}"
    with pytest.raises(UsageError, match="does not begin with other any more"):
        found.part(Narrowed("other", (KeySpan(1, 1, 1),)))


@pytest.mark.parametrize(
    ("described", "expression", "wire"),
    [
        (row("bigint"), "CAST(`c` AS SIGNED)", Wire.LONG),
        (row("bigint", "bigint unsigned"), "CAST(`c` AS CHAR)", Wire.TEXT),
        (row("decimal", digits=65, scale=30), "CAST(`c` AS CHAR)", Wire.TEXT),
        (row("float"), "CAST(`c` AS DOUBLE)", Wire.DOUBLE),
        (row("bit", "bit(1)", digits=1), "CAST(`c` AS SIGNED)", Wire.LONG),
        (row("bit", "bit(9)", digits=9), "CAST(`c` AS BINARY)", Wire.BYTES),
        (row("date"), "DATEDIFF(`c`, '1970-01-01')", Wire.DAYS),
        (row("date", nullable="NO"), "COALESCE(DATEDIFF(`c`, '1970-01-01'), 0)", Wire.DAYS),
        (row("text", charset="latin1"), "CONVERT(`c` USING utf8mb4)", Wire.TEXT),
        (row("varchar", charset="binary"), "CAST(`c` AS BINARY)", Wire.BYTES),
        (row("blob"), "CAST(`c` AS BINARY)", Wire.BYTES),
        (row("json"), "CAST(`c` AS CHAR)", Wire.TEXT),
        (row("vector", "vector(3)"), "HEX(`c`)", Wire.FLOATS),
    ],
)
def test_column_is_read_through_an_expression(
    described: dict[str, object], expression: str, wire: Wire
) -> None:
    found = _column(described)
    assert (found.expression, found.wire) == (expression, wire)


def test_column_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        _column(row("hologram"))
