"""Events without a schema, of a table without a definition in the log."""

from replicator.config import SourceConfig
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import LONG, STRING
from replicator.runner.scheduler import Scheduler
from replicator.runner.table_states import ReadDefinition, TableStates
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import created

SOURCE = {"source": {"url": "mysql://reader@db.example/shop", "tables": ["shop.*"]}}


def read_definitions_with(lake: LakeHarness, read: ReadDefinition) -> None:
    lake.schedule = lambda context: Scheduler(context, tables=TableStates(context, read_definition=read))


def test_definition_is_read_from_the_source_when_the_log_has_none(lake: LakeHarness) -> None:
    asked = []

    def definition(source: SourceConfig, table: TableId) -> TableSchema:
        asked.append((str(source.server().host), table))
        return TableSchema((Column("id", LONG), Column("name", STRING)), ("id",))

    read_definitions_with(lake, definition)
    lake.write([created(1, "Ada"), created(2, "Olga")])
    lake.catch_up(lake.config(**SOURCE))
    assert asked == [("db.example", TableId("shop", "orders"))]
    assert sorted((r["id"], r["name"]) for r in lake.rows("orders")) == [(1, "Ada"), (2, "Olga")]
