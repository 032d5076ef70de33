"""Columns from the source's information_schema."""

from typing import Any

import pytest

from replicator.model.types import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    VECTOR,
    Encoding,
    LakeType,
    decimal,
)
from replicator.sources.mysql.definitions import column_of

NOTHING = dict.fromkeys(("charset", "digits", "scale", "fraction", "size"))


def row(kind: str, whole: str | None = None, **facts: Any) -> dict[str, Any]:
    return {"name": "x", "kind": kind, "whole": whole or kind, "nullable": "YES", **NOTHING, **facts}


@pytest.mark.parametrize(
    ("found", "lake_type", "encoding"),
    [
        (row("int", digits=10, scale=0), INT, Encoding.PLAIN),
        (row("int", "int unsigned", digits=10, scale=0), LONG, Encoding.PLAIN),
        (row("int", "int(6) unsigned zerofill", digits=10, scale=0), LONG, Encoding.PLAIN),
        (row("bigint", "bigint unsigned", digits=20, scale=0), decimal(20, 0), Encoding.UNSEEN_DECIMAL),
        (row("tinyint", "tinyint(1)", digits=3, scale=0), INT, Encoding.FLAG),
        (row("tinyint", digits=3, scale=0), INT, Encoding.PLAIN),
        (row("decimal", "decimal(12,2)", digits=12, scale=2), decimal(12, 2), Encoding.UNSEEN_DECIMAL),
        (row("decimal", "decimal(65,30)", digits=65, scale=30), STRING, Encoding.UNSEEN_DECIMAL),
        (row("float", digits=12), FLOAT, Encoding.PLAIN),
        (row("float", "float(7,4)", digits=7, scale=4), DOUBLE, Encoding.PLAIN),
        (row("double", digits=22), DOUBLE, Encoding.PLAIN),
        (row("bit", "bit(1)", digits=1), BOOLEAN, Encoding.PLAIN),
        (row("bit", "bit(9)", digits=9), BINARY, Encoding.BASE64_BITS),
        (row("datetime", fraction=0), TIMESTAMP, Encoding.MILLIS),
        (row("datetime", "datetime(6)", fraction=6), TIMESTAMP, Encoding.MICROS),
        (row("time", "time(6)", fraction=6), LONG, Encoding.PLAIN),
        (row("varchar", "varchar(9)", size=9, charset="sjis"), STRING, Encoding.SJIS),
        (row("binary", "binary(9)", size=9), BINARY, Encoding.PLAIN),
        (row("geomcollection"), BINARY, Encoding.GEOMETRY),
        (row("vector", "vector(3)", size=12), VECTOR, Encoding.PLAIN),
    ],
)
def test_column_of_has_lake_type_and_encoding(
    found: dict[str, Any], lake_type: LakeType, encoding: Encoding
) -> None:
    column = column_of(found)
    assert (column.type, column.encoding) == (lake_type, encoding)


def test_column_of_has_labels_nullability_and_size() -> None:
    column = column_of(row("enum", r"enum('a','b, c','it''s','back\\slash')", nullable="NO"))
    assert not column.nullable
    assert column.respelt == (("b\\, c", "b, c"), ("back\\\\slash", "back\\slash"))
    assert column_of(row("decimal", "decimal(65,30)", digits=65, scale=30)).size == 30
