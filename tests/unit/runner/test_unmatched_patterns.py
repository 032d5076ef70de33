"""The scheduler warns of patterns of the configuration that match nothing in the log."""

from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from replicator.model.events import RawRecord
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import LONG
from tests.oracle.events import ColumnSpec, Place, schema_change_event
from tests.support.scheduler_harness import SchedulerHarness

UNMATCHED: dict[str, Any] = {
    "source": {"tables": ["shop.*", "crm.*"], "exclude": ["shop.tmp_*"]},
    "columns": {"exclude": ["e?mail", "card[1]"]},
    "table": [{"name": "shop.orders", "columns": {"mask": {"nmae": {"null": True}}}}, {"name": "shop.gone"}],
}


def warned(harness: SchedulerHarness) -> list[str]:
    """Return the patterns in the warnings of two starts of the stream."""
    with capture_logs() as lines:
        for _ in range(2):
            harness.mirror.check_log()
    return [line["patterns"] for line in lines if line["log_level"] == "warning"]


def test_check_log_warns_once_of_patterns_that_match_no_table(tmp_path: Path) -> None:
    harness = SchedulerHarness(tmp_path, **UNMATCHED)
    define(harness, "orders", "id", "E-Mail")
    tables = 'source.tables "crm.*", [[table]] "shop.gone"'
    # The columns of one table are unknown, and the rules may be for them.
    assert warned(harness) == [tables]
    harness = SchedulerHarness(tmp_path, **UNMATCHED)
    define(harness, "orders", "id", "E-Mail")
    define(harness, "users", "id")
    columns = 'columns.exclude "card[1]", [[table]] "shop.orders" columns.mask "nmae"'
    assert warned(harness) == [f"{tables}, {columns}"]


def test_check_log_does_not_warn_of_rules_for_former_column_names(tmp_path: Path) -> None:
    sections: dict[str, Any] = {"source": {"tables": ["shop.*"]}, "columns": {"exclude": ["email"]}}
    harness = SchedulerHarness(tmp_path, **sections)
    for at, column, kind in ((4, "email", "CREATE"), (9, "mail", "ALTER")):
        ddl = "ALTER TABLE orders RENAME COLUMN email TO mail" if kind == "ALTER" else None
        value = schema_change_event(
            Place(1, at), "orders", [ColumnSpec(column, "bigint")], [], kind=kind, ddl=ddl
        )
        assert (
            harness.mirror.context.schemas.add_schema_changes([RawRecord("shop", 0, at, 0, None, value)])
            == []
        )
    define(harness, "users", "id")
    assert warned(harness) == []


def define(harness: SchedulerHarness, table: str, *columns: str) -> None:
    """Define a table as the log would."""
    schema = TableSchema(tuple(Column(name, LONG) for name in columns))
    harness.mirror.context.schemas.define(TableId("shop", table), schema)
