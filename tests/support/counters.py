"""A database whose transactions each change several tables: in every state, all counters are equal."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from replicator.model.gtid import GtidSet
from tests.support.source import SourceDatabase

COUNTERS = ("counter_a", "counter_b", "counter_c")
TABLES = [
    *(f"CREATE TABLE {name} (id INT PRIMARY KEY, n INT NOT NULL)" for name in COUNTERS),
    "CREATE TABLE journal (n INT PRIMARY KEY)",
    "CREATE TABLE idle (id INT PRIMARY KEY)",
    *(f"INSERT INTO {name} VALUES (1, 0), (2, 0)" for name in COUNTERS),
    "INSERT INTO idle VALUES (1), (2), (3)",
]


class Counting(threading.Thread):
    """Commits transactions that each add one to all counters, and a row to the journal."""

    def __init__(self, database: SourceDatabase, commits: int) -> None:
        super().__init__(name="counting", daemon=True)
        self.database = database
        self.stopping = threading.Event()
        self.commits = commits

    def run(self) -> None:
        with self.database.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while not self.stopping.wait(0.002):
                self.commits += 1
                cursor.execute("INSERT INTO journal VALUES (%s)", (self.commits,))
                for name in COUNTERS:
                    cursor.execute(f"UPDATE {name} SET n = n + 1")
                connection.commit()


@contextmanager
def counting(database: SourceDatabase, commits: int = 0) -> Iterator[Counting]:
    """Run the writer during the block, after it has made `commits`."""
    writer = Counting(database, commits)
    writer.start()
    try:
        yield writer
    finally:
        writer.stopping.set()
        writer.join()


def executed(database: SourceDatabase) -> GtidSet:
    """Return the transactions that the server has executed."""
    return GtidSet.parse(str(database.rows("SELECT @@gtid_executed")[0][0]))
