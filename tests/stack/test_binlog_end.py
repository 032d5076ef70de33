"""The end of the binlog while transactions commit: position and GTIDs say the same."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from replicator.config import load
from replicator.model.gtid import GtidSet
from replicator.sources.mysql.binlogs import read_exact_binlog_end
from replicator.sources.mysql.connection import connect
from tests.support.source import SourceDatabase

pytestmark = pytest.mark.stack

READS = 500
WRITERS = 4


@contextmanager
def committing(database: SourceDatabase) -> Iterator[None]:
    """Commit small transactions in several sessions during the block."""
    stopping = threading.Event()

    def work(first: int) -> None:
        with database.connect() as connection, connection.cursor() as cursor:
            number = first
            while not stopping.is_set():
                number += WRITERS
                cursor.execute("INSERT INTO journal VALUES (%s)", (number,))

    threads = [threading.Thread(target=work, args=(first,), daemon=True) for first in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def test_end_of_the_binlog_has_exactly_the_transactions_before_it(
    source_database: SourceDatabase, tmp_path: Path
) -> None:
    source_database.execute("CREATE TABLE journal (n INT PRIMARY KEY)")
    file = tmp_path / "mirror.toml"
    file.write_text(source_database.config_text(tmp_path))
    with committing(source_database), connect(load(file).source) as connection:
        ends = [read_exact_binlog_end(connection) for _ in range(READS)]
        uuid = str(connection.scalar(text("SELECT @@server_uuid")))
    before = {end.file: dict[int, int]() for end in ends}
    for name, numbers in before.items():
        for row in source_database.rows(f"SHOW BINLOG EVENTS IN '{name}'"):
            # The event that names the transaction begins where the previous one ends.
            if found := re.search(rf"'{uuid}:(\d+)'", str(row[5])):
                numbers[int(row[1])] = int(found[1])
    assert len({end.pos for end in ends}) > READS // 10
    for end in ends:
        assert end.gtids is not None
        newest = max((n for at, n in before[end.file].items() if at < end.pos), default=None)
        following = min((n for at, n in before[end.file].items() if at >= end.pos), default=None)
        if newest is not None:
            assert end.gtids.lacking(GtidSet.parse(f"{uuid}:1-{newest}")) == 0, end
        if following is not None:
            assert end.gtids.lacking(GtidSet.parse(f"{uuid}:{following}")) == 1, end
