"""A connector that continues on a replica, which was promoted after its source failed."""

from pathlib import Path

import pytest

from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from replicator.operations.connector import register
from tests.support.mirror import FAST_MIRROR, START_S, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.replica import Replica

ORDERS = (
    # The replica's binlogs get lower numbers.
    *["FLUSH BINARY LOGS"] * 12,
    "CREATE TABLE orders (id INT PRIMARY KEY, name VARCHAR(20))",
    "INSERT INTO orders VALUES (1, 'one')",
)
BEFORE = (
    "INSERT INTO orders VALUES (2, 'two')",
    "ALTER TABLE orders ADD COLUMN price INT NOT NULL DEFAULT 5",
    "INSERT INTO orders VALUES (3, 'three', 30)",
    "ALTER TABLE orders RENAME COLUMN name TO title",
    "UPDATE orders SET title = 'second' WHERE id = 2",
)
AFTER = (
    "INSERT INTO orders VALUES (4, 'four', 40)",
    "UPDATE orders SET price = 31 WHERE id = 3",
    "ALTER TABLE orders ADD COLUMN note VARCHAR(20) AFTER id, DROP COLUMN price",
    "INSERT INTO orders VALUES (5, 'new', 'five')",
    "DELETE FROM orders WHERE id = 1",
)


def promote(mirrored: MirroredDatabase, replica: Replica) -> Path:
    """Make the replica a server of its own, and let the connector continue there; return a configuration with it."""
    replica.catch_up()
    replica.execute("STOP REPLICA")
    config = mirrored.configured("promoted.toml", replica.as_source(mirrored.config.read_text()))
    register(load(config))
    return config


@pytest.mark.fault(
    "MySQL fails, and a replica with other binlogs is promoted while both are written to and altered",
    area="Source",
    on="MySQL, Kafka Connect, Kafka, Iceberg",
    outcome="the mirror continues",
)
@pytest.mark.parametrize(("order", "avro"), [("OFF", False), ("ON", True)], ids=["json", "avro"])
def test_no_change_is_lost_or_repeated_when_a_replica_is_promoted(
    mirror_database: MirroredDatabaseBuilder, replica: Replica, order: str, *, avro: bool
) -> None:
    registry = replica.source.registry_url
    log = f'format = "avro"\nregistry_url = "{registry}"' if avro else ""
    replica.execute(
        "STOP REPLICA SQL_THREAD",
        f"SET GLOBAL replica_preserve_commit_order = {order}",
        "SET GLOBAL replica_parallel_workers = 4",
        "START REPLICA SQL_THREAD",
    )
    mirrored = mirror_database(tables=2, log=log, extra=FAST_MIRROR, prepare=ORDERS)
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        until(mirror.batches, seconds=START_S, doing="the first batch")
        with mirrored.writers(1, 2):
            mirrored.database.execute(*BEFORE)
            until(
                lambda: not mirrored.comparison.differences(["orders"]), seconds=START_S, doing="the last row"
            )
        config_file = promote(mirrored, replica)
        promoted = MirroredDatabase(
            replica.database(mirrored.database), mirrored.tables, mirrored.config, mirrored.folder
        )
        with promoted.writers(3, 4):
            promoted.database.execute(*AFTER)
            until(lambda: not promoted.comparison.differences(["orders"]), seconds=START_S, doing="its rows")
        assert mirror.stop() == 0, mirror.tail()
    # If the connector was stopped within a transaction, its table is read again: from the server of `source.url`.
    with running(config_file, mirrored.folder / "out.log") as mirror:
        promoted.comparison.await_equal(mirror, START_S)
        # The tables may have been equal at once, and a process does not handle the signal while it starts.
        until(
            lambda: any(line.get("event") == "following the log" for line in mirror.lines()),
            seconds=START_S,
            doing="the start of the second process",
        )
        assert mirror.stop() == 0, mirror.tail()
    config = load(mirrored.config)
    with open_catalog(config.lake) as catalog:
        changes = catalog.load_table((config.lake.changes_namespace, "orders")).scan().to_arrow().to_pylist()
    kinds = sorted((row["id"], row["_change"]["kind"]) for row in changes)
    assert [kind for number, kind in kinds if number in (2, 3)].count("INSERT") == 2
    assert len(kinds) == 5 + 2 * 2 + 1, kinds
