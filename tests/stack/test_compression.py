"""Whether a transaction is compressed, as a real MySQL server tells."""

from pathlib import Path

import pytest

from replicator.config import load
from replicator.model.position import SourcePosition
from replicator.sources.compression import CompressionProbe
from replicator.sources.mysql.connection import connect, read_binlog_end
from tests.support.source import SourceDatabase

pytestmark = pytest.mark.stack


def test_source_tells_which_transactions_are_compressed(
    source_database: SourceDatabase, tmp_path: Path
) -> None:
    source_database.execute("CREATE TABLE visits (page VARCHAR(10))")
    file = tmp_path / "mirror.toml"
    file.write_text(source_database.config_text(tmp_path))
    config = load(file)
    with connect(config.source) as connection:
        start = read_binlog_end(connection)
    for setting in ("ON", "OFF"):
        with source_database.connect() as session, session.cursor() as cursor:
            cursor.execute(f"SET SESSION binlog_transaction_compression = {setting}")
            cursor.execute("INSERT INTO visits VALUES ('home')")
    events = source_database.rows(f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.pos}")
    positions = {str(row[2]): SourcePosition(start.file, int(row[1]), 0, int(row[3])) for row in events}
    compressed, plain = positions["Transaction_payload"], positions["Write_rows"]
    probe = CompressionProbe.of(config)
    assert (probe.may_be_at(compressed), probe.may_be_at(plain)) == (True, False)
    # The server has no such file, no such event, or one of another server.
    others = (
        SourcePosition("binlog.999999", plain.pos, 0, plain.server_id),
        SourcePosition(plain.file, plain.pos + 1, 0, plain.server_id),
        SourcePosition(plain.file, plain.pos, 0, plain.server_id + 1),
    )
    assert [probe.may_be_at(position) for position in others] == [None, None, None]
