"""Statements after which the rows that a re-read has read do not belong to the table any more."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from replicator.decode.json.format import JsonFormat
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.errors import RowsChanged
from replicator.lake.ledger import Progress
from replicator.model.commit_marker import CommitMarker, PartitionProgress
from replicator.model.events import RawRecord
from replicator.model.reread import Phase, Request, StagingState
from replicator.model.table import TableId
from replicator.recovery.table_reread import TableReread
from replicator.schema.evolution.changes import SchemaState
from replicator.telemetry import Stopwatch
from tests.oracle.events import ColumnSpec, Place, schema_change_event
from tests.support.config import minimal_config

TABLE, TOPIC = TableId("shop", "orders"), "shop.shop.orders"
COLUMNS = [ColumnSpec("id", "bigint", False)]
READ_AT = 300
"""Position at which the rows were read: later statements count."""


def statement(at: int, table: str, kind: str, ddl: str | None = None, old: str | None = None) -> bytes:
    return schema_change_event(Place(1, at), table, COLUMNS, ["id"], kind=kind, ddl=ddl, old_name=old)


def tables(at: int = 0) -> list[bytes]:
    return [statement(at + 100, "orders", "CREATE"), statement(at + 110, "bills", "CREATE")]


def exchange(at: int) -> list[bytes]:
    ddl = "RENAME TABLE orders TO tmp, bills TO orders, tmp TO bills"
    return [statement(at, name, "ALTER", ddl) for name in ("orders", "bills")]


def recreation(at: int) -> list[bytes]:
    return [statement(at, "orders", "DROP"), statement(at + 10, "orders", "CREATE")]


def replacement(at: int) -> list[bytes]:
    ddl = "RENAME TABLE orders TO old, bills TO orders"
    return [statement(at, "old", "ALTER", ddl), statement(at, "orders", "ALTER", ddl)]


def renaming(at: int) -> list[bytes]:
    return [statement(at, "archived", "ALTER", old="orders")]


class Harness:
    """A re-read whose rows are all read, with mocks of log and lake."""

    def __init__(
        self,
        tmp_path: Path,
        statements: list[bytes],
        *,
        reached: int = 5,
    ) -> None:
        self.schemas = SchemaTracker(JsonFormat())
        for offset, value in enumerate(statements):
            assert self.schemas.add_schema_changes([RawRecord("shop", 0, offset, 0, None, value)]) == []
        versions = self.schemas.history(TABLE).versions
        # The staging table was made with the version before `READ_AT`.
        read_at = max(v.at for v in versions if v.position.pos <= READ_AT)
        marker = CommitMarker("shop", 1, 1, {TOPIC: {0: PartitionProgress(reached)}})
        mirrored = Progress(marker, None, False, mirror_schema=SchemaState(versions[-1].at))
        staged = Progress(marker, None, False, mirror_schema=SchemaState(read_at))
        context: Any = SimpleNamespace(
            config=minimal_config(tmp_path),
            schemas=self.schemas,
            log=Mock(),
            ledger=Mock(progress=lambda _table: mirrored),
            partition_counts=Mock(),
            prepared=Mock(),
        )
        self.staging = Mock()
        self.staging.context = SimpleNamespace(ledger=Mock(progress=lambda _table: staged))
        self.staging.state.return_value = StagingState("r", "", None, complete=True, until={0: 5})
        request = Request("r", TABLE, "a test", 1, phase=Phase.CATCHING_UP)
        self.reread = TableReread(context, self.staging, request, TOPIC, Mock())

    def catch_up(self) -> bool:
        return self.reread.catch_up({0: 0}, 100, Stopwatch())


@pytest.mark.parametrize(
    ("later", "told"),
    [
        (recreation, "DROP TABLE and CREATE TABLE"),
        (exchange, "RENAME TABLE `bills` TO `orders`"),
        (replacement, "RENAME TABLE `bills` TO `orders`"),
        (renaming, "its renaming to shop.archived"),
    ],
)
def test_table_is_read_again_after_its_name_went_to_another_table(
    tmp_path: Path, later: Any, told: str
) -> None:
    harness = Harness(tmp_path, [*tables(), *later(400)])
    with pytest.raises(RowsChanged, match=f"changed while it was read, by {told}"):
        harness.catch_up()
    harness.staging.drop.assert_called_once_with(TABLE)
    assert not harness.reread.is_read


@pytest.mark.parametrize("earlier", [recreation, exchange, replacement])
def test_statement_from_before_the_rows_were_read_does_not_count(tmp_path: Path, earlier: Any) -> None:
    """Otherwise the table would be read again for ever."""
    harness = Harness(tmp_path, [*tables(), *earlier(200)])
    assert harness.catch_up()
    harness.staging.drop.assert_not_called()


def test_dropped_table_keeps_the_rows_that_were_read(tmp_path: Path) -> None:
    """As its mirror keeps its rows, which have to be those of the source before the statement."""
    assert Harness(tmp_path, [*tables(), statement(400, "orders", "DROP")]).catch_up()


def test_a_reread_that_waits_for_a_thread_is_cancelled_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads may wait for the connector, which is repaired only after this."""
    monkeypatch.setattr("replicator.recovery.reader.table_reader.TableReader", Mock())
    monkeypatch.setattr("replicator.sources.mysql.throttle.Throttle", Mock())
    harness, released = Harness(tmp_path, tables()), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(released.wait)
        assert harness.reread.start(pool, threading.Event())
        thread = threading.Thread(target=harness.reread.cancel, daemon=True)
        thread.start()
        thread.join(10)
        is_done = not thread.is_alive()
        released.set()
    assert is_done
