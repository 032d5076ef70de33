"""Columns out of the source's own information_schema."""

from typing import Any

import pytest

from replicator.definitions import column_of
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
    LakeType,
    Wire,
    decimal,
)

NOTHING = dict.fromkeys(("charset", "digits", "scale", "fraction", "size"))


def row(kind: str, whole: str | None = None, **facts: Any) -> dict[str, Any]:
    return {"name": "x", "kind": kind, "whole": whole or kind, "nullable": "YES", **NOTHING, **facts}


@pytest.mark.parametrize(
    ("found", "lake_type", "wire"),
    [
        (row("int", digits=10, scale=0), INT, Wire.PLAIN),
        (row("int", "int unsigned", digits=10, scale=0), LONG, Wire.PLAIN),
        (row("int", "int(6) unsigned zerofill", digits=10, scale=0), LONG, Wire.PLAIN),
        (row("bigint", "bigint unsigned", digits=20, scale=0), decimal(20, 0), Wire.UNSEEN_DECIMAL),
        (row("tinyint", "tinyint(1)", digits=3, scale=0), INT, Wire.FLAG),
        (row("tinyint", digits=3, scale=0), INT, Wire.PLAIN),
        (row("decimal", "decimal(12,2)", digits=12, scale=2), decimal(12, 2), Wire.UNSEEN_DECIMAL),
        (row("decimal", "decimal(65,30)", digits=65, scale=30), STRING, Wire.UNSEEN_DECIMAL),
        (row("float", digits=12), FLOAT, Wire.PLAIN),
        (row("float", "float(7,4)", digits=7, scale=4), DOUBLE, Wire.PLAIN),
        (row("double", digits=22), DOUBLE, Wire.PLAIN),
        (row("bit", "bit(1)", digits=1), BOOLEAN, Wire.PLAIN),
        (row("bit", "bit(9)", digits=9), BINARY, Wire.BASE64_BITS),
        (row("datetime", fraction=0), TIMESTAMP, Wire.MILLIS),
        (row("datetime", "datetime(6)", fraction=6), TIMESTAMP, Wire.MICROS),
        (row("time", "time(6)", fraction=6), LONG, Wire.PLAIN),
        (row("varchar", "varchar(9)", size=9, charset="sjis"), STRING, Wire.PLAIN),
        (row("binary", "binary(9)", size=9), BINARY, Wire.PLAIN),
        (row("geomcollection"), BINARY, Wire.GEOMETRY),
        (row("vector", "vector(3)", size=12), VECTOR, Wire.PLAIN),
    ],
)
def test_types(found: dict[str, Any], lake_type: LakeType, wire: Wire) -> None:
    column = column_of(found)
    assert (column.type, column.wire) == (lake_type, wire)


def test_labels_and_null() -> None:
    column = column_of(row("enum", r"enum('a','b, c','it''s','back\slash')", nullable="NO"))
    assert not column.nullable
    assert column.respelt == (("b\\, c", "b, c"), ("back\\\\slash", "back\\slash"))
    assert column_of(row("decimal", "decimal(65,30)", digits=65, scale=30)).size == 30
