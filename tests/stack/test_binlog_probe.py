"""What a real MySQL server tells of positions in its binlog."""

from pathlib import Path

import pytest

from replicator.config import Config, load
from replicator.model.binlog import BinlogEnd
from replicator.model.position import SourcePosition
from replicator.sources.binlog_probe import BinlogProbe
from replicator.sources.mysql.connection import connect, read_binlog_end
from tests.support.source import SourceDatabase

pytestmark = pytest.mark.stack


def begin(database: SourceDatabase, folder: Path) -> tuple[Config, BinlogEnd]:
    """Return the configuration of a mirror of the database, and the end of its binlog."""
    file = folder / "mirror.toml"
    file.write_text(database.config_text(folder))
    config = load(file)
    with connect(config.source) as connection:
        return config, read_binlog_end(connection)


def test_source_tells_which_transactions_are_compressed(
    source_database: SourceDatabase, tmp_path: Path
) -> None:
    source_database.execute("CREATE TABLE visits (page VARCHAR(10))")
    config, start = begin(source_database, tmp_path)
    for setting in ("ON", "OFF"):
        with source_database.connect() as session, session.cursor() as cursor:
            cursor.execute(f"SET SESSION binlog_transaction_compression = {setting}")
            cursor.execute("INSERT INTO visits VALUES ('home')")
    events = source_database.rows(f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.pos}")
    positions = {str(row[2]): SourcePosition(start.file, int(row[1]), 0, int(row[3])) for row in events}
    compressed, plain = positions["Transaction_payload"], positions["Write_rows"]
    probe = BinlogProbe.of(config, log_grows=True)
    assert (probe.may_be_compressed(compressed), probe.may_be_compressed(plain)) == (True, False)
    # The server has no such file, no such event, or one of another server.
    others = (
        SourcePosition("binlog.999999", plain.pos, 0, plain.server_id),
        SourcePosition(plain.file, plain.pos + 1, 0, plain.server_id),
        SourcePosition(plain.file, plain.pos, 0, plain.server_id + 1),
    )
    assert [probe.may_be_compressed(position) for position in others] == [None, None, None]


def test_source_tells_which_positions_are_in_one_transaction(
    source_database: SourceDatabase, tmp_path: Path
) -> None:
    source_database.execute("CREATE TABLE visits (page VARCHAR(10))")
    config, start = begin(source_database, tmp_path)
    many = "INSERT INTO visits VALUES ('home')"
    for statements in ([many] * 700, [many]):
        with source_database.connect() as session, session.cursor() as cursor:
            cursor.execute("BEGIN")
            for statement in statements:
                cursor.execute(statement)
            cursor.execute("COMMIT")
    events = source_database.rows(f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.pos}")
    rows = [SourcePosition(start.file, int(e[1]), 0, int(e[3])) for e in events if str(e[2]) == "Write_rows"]
    first, last, other = rows[0], rows[699], rows[700]
    probe = BinlogProbe.of(config, log_grows=True)
    assert [probe.has_both(first, later) for later in (first, rows[1], last)] == [True, True, True]
    # No event begins there, it is one of the next transaction, or behind the end of the binlog.
    beyond = SourcePosition(start.file, other.pos + 10**6, 0, other.server_id)
    between = SourcePosition(start.file, rows[5].pos + 1, 0, other.server_id)
    assert [probe.has_both(first, later) for later in (between, other, beyond)] == [False, False, False]
    # The server does not have the first event.
    missing = SourcePosition("binlog.999999", first.pos, 0, first.server_id)
    assert [probe.has_both(event, last) for event in (missing, between)] == [None, None]
