"""After which statements a table with generated columns has other rows, although no event tells which."""

import json
from typing import Any

import pytest

from replicator.schema.history.builder import build_history
from replicator.schema.history.declared import table_definitions
from replicator.schema.history.versions import TableDefinition

CREATE = "CREATE TABLE t (id INT PRIMARY KEY, d INT, h CHAR(32) AS (MD5(d)) STORED)"


def defined(pos: int, ddl: str, column: dict[str, Any], snapshot: str = "false") -> list[TableDefinition]:
    """Return the definition of the table t, whose column h is computed from column d."""
    columns = [
        {"name": "id", "typeName": "INT"},
        {"name": "d", **column},
        {"name": "h", "typeName": "CHAR", "length": 32},
    ]
    described = [{"position": i, "optional": True} | c for i, c in enumerate(columns)]
    table = {"primaryKeyColumnNames": ["id"], "columns": described}
    kind = "CREATE" if ddl.startswith("CREATE") else "ALTER"
    change = {"type": kind, "id": '"shop"."t"', "table": table}
    source = {"file": "b.000001", "pos": pos, "snapshot": snapshot}
    return table_definitions(json.dumps({"source": source, "ddl": ddl, "tableChanges": [change]}).encode())


def unlogged(
    was: dict[str, Any],
    now: dict[str, Any],
    ddl: str = "ALTER TABLE t MODIFY d …",
    *,
    create: str = CREATE,
    snapshot: str = "false",
) -> str | None:
    found = [*defined(4, create, was), *defined(50, ddl, now, snapshot)]
    return build_history(found).versions[-1].unlogged


LATIN1 = {"typeName": "VARCHAR", "length": 50, "charsetName": "latin1"}
CONVERT = "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4"


def labels(*names: str, kind: str = "ENUM") -> dict[str, Any]:
    return {"typeName": kind, "enumValues": [f"'{name}'" for name in names]}


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (LATIN1, LATIN1 | {"charsetName": "utf8mb4"}),
        (LATIN1, {"typeName": "TEXT", "charsetName": "utf8mb4"}),
        (labels("a", "b"), labels("b", "a")),
        (labels("a", "b"), labels("a", "c", "b")),
        ({"typeName": "FLOAT"}, {"typeName": "DOUBLE"}),
        ({"typeName": "CHAR", "length": 4}, {"typeName": "CHAR", "length": 9}),
        ({"typeName": "DATETIME"}, {"typeName": "DATETIME", "length": 3}),
        ({"typeName": "TINYINT UNSIGNED"}, {"typeName": "INT"}),
        ({"typeName": "INT"}, {"typeName": "BIGINT"}),
        ({"typeName": "INT UNSIGNED", "length": 4}, {"typeName": "INT UNSIGNED ZEROFILL", "length": 4}),
    ],
)
def test_expressions_may_have_other_results_after_a_change_that_converts_no_value(
    was: dict[str, Any], now: dict[str, Any]
) -> None:
    assert unlogged(was, now) == "ALTER TABLE t …, with the generated h,"
    # Without a generated column, nothing is computed; nor are the statements of a snapshot executed.
    assert unlogged(was, now, create="CREATE TABLE t (id INT PRIMARY KEY, d INT, h CHAR(32))") is None
    assert unlogged(was, now, CREATE, snapshot="true") is None


@pytest.mark.parametrize(
    ("ddl", "found"),
    [
        (CONVERT, True),
        ("ALTER TABLE t ADD KEY k (d), CONVERT TO CHARSET utf8mb4 COLLATE utf8mb4_bin", True),
        ("ALTER TABLE t MODIFY d VARCHAR(50) COLLATE latin1_bin", True),
        ("ALTER TABLE t CHANGE COLUMN d d VARCHAR(50) CHARACTER SET latin1", True),
        # These change the default for new columns.
        ("ALTER TABLE t DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", False),
        ("ALTER TABLE t COLLATE = utf8mb4_bin", False),
        ("ALTER TABLE t MODIFY d VARCHAR(50) COMMENT 'CHARACTER SET, COLLATE'", False),
        ("ALTER TABLE t RENAME COLUMN `convert` TO `to`", False),
    ],
)
def test_expressions_may_have_other_results_with_another_collation(ddl: str, found: bool) -> None:
    text = "ALTER TABLE t …, with the generated h," if found else None
    assert unlogged(LATIN1, LATIN1, ddl) == text
