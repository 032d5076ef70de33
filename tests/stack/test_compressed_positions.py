"""What a real MySQL server tells of positions in its binlog."""

from pathlib import Path

import pytest

from replicator.config import load
from replicator.errors import SourceUnavailable
from replicator.model.position import SourcePosition
from replicator.sources.compressed_positions import CompressedPositions
from replicator.sources.mysql.connection import connect, read_binlog_end
from tests.support.mirror import until
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
    known = CompressedPositions.of(config, log_grows=True)

    def found(*places: SourcePosition) -> list[bool] | None:
        try:
            return [known.may_be_at(place) for place in places]
        except SourceUnavailable:
            return None

    until(lambda: found(compressed, plain) is not None, seconds=30, doing="MySQL's answer")
    assert found(compressed, plain) == [True, False]
    # The server has no such file, no such event, or one of another server: it cannot tell.
    others = (
        SourcePosition("binlog.999999", plain.pos, 0, plain.server_id),
        SourcePosition(plain.file, plain.pos + 1, 0, plain.server_id),
        SourcePosition(compressed.file, compressed.pos, 0, compressed.server_id + 1),
    )
    until(lambda: found(*others) is not None, seconds=30, doing="MySQL's answer")
    assert found(*others) == [True, True, True]
