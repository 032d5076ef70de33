"""The time of the first transaction after a position, read from a real server's binlog."""

import time
import tomllib
from pathlib import Path

import pytest

from replicator.config import parse
from replicator.sources.binlog.download import first_commit_s
from replicator.sources.mysql.connection import connect, read_binlog_end
from tests.support.source import SourceDatabase

pytestmark = pytest.mark.stack


def test_first_commit_after_a_position_is_found_also_in_later_files(
    source_database: SourceDatabase, tmp_path: Path
) -> None:
    source = parse(tomllib.loads(source_database.config_text(tmp_path)), base=tmp_path).source
    with connect(source) as connection:
        begin = read_binlog_end(connection)
    began = int(time.time())
    source_database.execute(
        "CREATE TABLE a (id INT PRIMARY KEY)", "FLUSH BINARY LOGS", "INSERT INTO a VALUES (1)"
    )
    with connect(source) as connection:
        end = read_binlog_end(connection)
    found = first_commit_s(source, begin.file, begin.pos)
    assert found is not None
    assert began <= found <= time.time() + 1
    # The next file begins with events that are no transactions.
    assert first_commit_s(source, end.file, 4) is not None
