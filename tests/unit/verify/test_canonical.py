"""The SQL expressions of canonical forms; tests/stack compares their values."""

from typing import Any

import pytest

from replicator.schema.types.table import Form
from replicator.verify.canonical import row_text
from tests.support.verified_tables import KEYLESS, NAMES, ORDERS, described


@pytest.mark.parametrize(
    ("values", "form", "expression"),
    [
        ({"kind": "int"}, Form.DIGITS, "`a``b`"),
        ({"kind": "int", "whole": "int(6) unsigned zerofill"}, Form.DIGITS, "(`a``b` + 0)"),
        ({"kind": "bigint", "whole": "bigint unsigned"}, Form.DIGITS, "`a``b`"),
        ({"kind": "year"}, Form.DIGITS, "(`a``b` + 0)"),
        ({"kind": "bit", "whole": "bit(1)", "digits": 1}, Form.DIGITS, "(`a``b` + 0)"),
        ({"kind": "bit", "whole": "bit(9)", "digits": 9}, Form.BYTES, "CAST(`a``b` AS BINARY)"),
        ({"kind": "decimal", "whole": "decimal(65,30)", "digits": 65, "scale": 30}, Form.DIGITS, "`a``b`"),
        ({"kind": "float"}, Form.DOUBLE, "SUBSTRING(POINT(`a``b` + 0e0, 0), 10, 8)"),
        ({"kind": "varchar", "charset": "utf8mb3", "size": 9}, Form.TEXT, "`a``b`"),
        ({"kind": "varchar", "charset": "latin1", "size": 9}, Form.TEXT, "CONVERT(`a``b` USING utf8mb4)"),
        (
            {"kind": "enum", "whole": "enum('x')", "charset": "gbk"},
            Form.TEXT,
            "CONVERT(`a``b` USING utf8mb4)",
        ),
        ({"kind": "text", "charset": "binary", "size": 9}, Form.BYTES, "CAST(`a``b` AS BINARY)"),
        ({"kind": "json"}, Form.JSON, "CAST(`a``b` AS CHAR)"),
        ({"kind": "date"}, Form.DAYS, "DATEDIFF(`a``b`, '1970-01-01')"),
        ({"kind": "date", "nullable": "NO"}, Form.DAYS, "COALESCE(DATEDIFF(`a``b`, '1970-01-01'), 0)"),
        ({"kind": "vector"}, Form.FLOATS, "HEX(`a``b`)"),
    ],
)
def test_expressions(values: dict[str, Any], form: Form, expression: str) -> None:
    (column,) = described({"a`b": values}).columns
    assert (column.form, column.expression) == (form, expression)


def test_row_text_has_lengths_and_null_flags() -> None:
    assert row_text(NAMES.columns) == (
        "CONCAT_WS(CAST('|' AS BINARY), `name`, SUBSTRING(POINT(`size` + 0e0, 0), 10, 8), (`size` IS NULL))"
    )
    assert row_text(KEYLESS.columns).endswith(
        "CONVERT(`note` USING utf8mb4), CONCAT((`at` IS NULL), (`note` IS NULL)))"
    )
    texts = described({name: {"kind": "varchar", "charset": "utf8mb4", "nullable": "NO"} for name in "abc"})
    assert row_text(texts.columns).endswith("`a`, `b`, `c`, LENGTH(`a`), LENGTH(`b`))")


def test_rows_without_a_key_are_divided_by_columns_whose_forms_are_exact() -> None:
    table = described({"j": {"kind": "json"}, "n": {"kind": "int"}})
    assert [column.source for column in table.identity] == ["n"]
    assert [column.source for column in described({"j": {"kind": "json"}}).identity] == ["j"]
    assert ORDERS.identity == ORDERS.key
