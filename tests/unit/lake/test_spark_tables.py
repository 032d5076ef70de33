"""Rows of the lake are read from a table as it was loaded, never by its name; see `lake.files.spark_tables`."""

import ast
from pathlib import Path

import replicator

_ROOT = Path(replicator.__file__).parent
_BY_NAME = ("read.table", "spark.table")
_CONSUMERS = {"consumer/spark.py"}
"""Modules that run in the session of a consumer; they read a snapshot by its id."""


def test_no_frame_of_a_lake_table_is_read_by_name() -> None:
    found = {
        path.relative_to(_ROOT).as_posix()
        for path in _ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_BY_NAME)
    }
    assert found == _CONSUMERS
