"""Read tables from a real MySQL while they change: for new mirrors, and to heal a mirror."""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from replicator.lake.reader import newest_marker, open_catalog
from replicator.model.changelog import RowKind
from replicator.operations.verify.checksum import canonical_value
from replicator.operations.verify.mysql import SourceTable, describe
from tests.e2e.test_conformance import INSERTED, available, execute
from tests.support import topics
from tests.support.mirror import COMMAND, FAST_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.workload.column_types import MODES, TABLES, TypeTable

BY_MIRROR = f"""
[bootstrap]
by = "mirror"
chunk_rows = 20
{FAST_MIRROR}
"""
CRASH_POINTS = (
    "after-reread-start",
    "before-reread-commit",
    "after-reread-commit",
    "between-reread-commits",
    "after-reread-rename",
)


def await_rereads(mirror: MirrorProcess, count: int) -> list[dict[str, Any]]:
    """Wait for `count` completed re-reads since the last start of the mirror, and return their log lines."""

    def done() -> list[dict[str, Any]]:
        assert mirror.is_alive(), mirror.tail()
        found = [line for line in mirror.lines() if line.get("event") == "re-read done"]
        return found if len(found) >= count else []

    return list(until(done, seconds=START_S, doing=f"{count} re-reads"))


def command(mirrored: MirroredDatabase, *arguments: str) -> dict[str, Any]:
    """Run a command that reads tables, and return its report."""
    done = subprocess.run(
        [COMMAND, *arguments, "-c", str(mirrored.config), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


def changes(mirrored: MirroredDatabase, table: str, op: str) -> list[str]:
    """Return the kinds of the changelog's rows with an op, sorted."""
    lake = mirrored.comparison.config.lake
    with open_catalog(lake) as catalog:
        rows = catalog.load_table((lake.changes_namespace, table)).scan(row_filter=f"_change.op = '{op}'")
        return sorted(row["_change"]["kind"] for row in rows.to_arrow().to_pylist())


def test_bootstrap_reads_tables_while_they_change(mirror_database: MirroredDatabaseBuilder) -> None:
    mirrored = mirror_database(tables=5, extra=BY_MIRROR)
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        with mirrored.writers(1, 2):
            await_rereads(mirror, 5)
            mirrored.database.execute("CREATE TABLE late (id INT PRIMARY KEY, name VARCHAR(9))")
            mirrored.database.execute("INSERT INTO late VALUES (1, 'a'), (2, 'b')")
            mirrored.database.execute("UPDATE late SET name = 'c' WHERE id = 2")
            await_rereads(mirror, 6)
        mirrored.comparison.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
    assert mirrored.comparison.assert_changelogs() > 0
    assert set(changes(mirrored, "t00", "r")) == {RowKind.INSERT}


def test_bootstrap_continues_after_a_kill_at_each_crash_point(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=1, extra=BY_MIRROR)
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log")
    with mirrored.writers(1):
        for number, point in enumerate(CRASH_POINTS):
            mirrored.database.execute(
                f"CREATE TABLE c{number} (id INT PRIMARY KEY, n INT)",
                f"INSERT INTO c{number} SELECT number, id FROM t00 WHERE number IS NOT NULL GROUP BY number, id "
                "ON DUPLICATE KEY UPDATE n = 1",
            )
            mirror.start(REPLICATOR_CRASH_AT=point)
            mirror.wait(START_S)
    mirror.start()
    try:
        mirrored.comparison.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
    finally:
        mirror.kill()
    mirrored.comparison.assert_changelogs()


def test_bootstrap_reads_each_value_as_events_have_it(mirror_database: MirroredDatabaseBuilder) -> None:
    mirrored = mirror_database(tables=1, extra=BY_MIRROR)
    tables = [available(table, mirrored.database) for table in TABLES]
    read = [table.insert(row, row) for table in tables for row in range(table.rows)]
    execute(mirrored.database, [MODES, *(table.create() for table in tables), *read])
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        await_rereads(mirror, len(tables) + 1)
        streamed = [table.insert(INSERTED + row, row) for table in tables for row in range(table.rows)]
        execute(mirrored.database, [MODES, *streamed])
        wanted = {table.name: 2 * table.rows for table in tables}
        until(lambda: row_counts(mirrored, tables) == wanted, seconds=START_S, doing="events are applied")
        assert mirror.stop() == 0, mirror.tail()
    found: dict[str, tuple[bytes | None, bytes | None]] = {}
    for table in tables:
        described = describe_source(mirrored, table.name)
        rows = lake_rows(mirrored, described)
        for row in range(table.rows):
            by_read, by_events = rows[row], rows[INSERTED + row]
            for case in table.cases:
                name = table.column(case)
                # Of some values, events have others than the source; generated columns depend on the key.
                if by_read[name] != by_events[name] and not (case.known or case.generated):
                    found[f"{table.name}, {case.label}, {row}"] = (by_read[name], by_events[name])
    assert not found, "\n".join(f"{place}: {values}" for place, values in found.items())


def row_counts(mirrored: MirroredDatabase, tables: Sequence[TypeTable]) -> dict[str, int]:
    lake = mirrored.comparison.config.lake
    with open_catalog(lake) as catalog:
        return {t.name: catalog.load_table((lake.namespace, t.name)).scan().count() for t in tables}


def describe_source(mirrored: MirroredDatabase, table: str) -> SourceTable:
    with mirrored.database.connect() as connection:
        return describe(connection, mirrored.database.name, table)


def lake_rows(mirrored: MirroredDatabase, table: SourceTable) -> dict[int, dict[str, bytes | None]]:
    """Return key → column → canonical value."""
    lake = mirrored.comparison.config.lake
    with open_catalog(lake) as catalog:
        rows = catalog.load_table((lake.namespace, table.name)).scan().to_arrow().to_pylist()
    return {row["id"]: {c.name: canonical_value(c.kind, row[c.name]) for c in table.columns} for row in rows}


def test_heal_applies_changes_that_no_log_has(mirror_database: MirroredDatabaseBuilder) -> None:
    rows = ", ".join(f"({number}, 'label {number}')" for number in range(50))
    prepare = [
        "CREATE TABLE still (id INT PRIMARY KEY, label VARCHAR(30))",
        f"INSERT INTO still VALUES {rows}",
    ]
    mirrored = mirror_database(tables=2, extra=FAST_MIRROR, prepare=prepare)
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S)
        with mirrored.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            cursor.execute("DELETE FROM still WHERE id < 3")
            cursor.execute("UPDATE still SET label = 'not in the log' WHERE id BETWEEN 10 AND 13")
            cursor.execute("INSERT INTO still VALUES (100, 'not in the log')")
        assert set(mirrored.comparison.differences()) == {"still"}
        with mirrored.writers(1):
            report = command(mirrored, "heal", f"{mirrored.database.name}.still")
        assert [(r["phase"], r["changed"]) for r in report["rereads"]] == [("done", 8)]
        mirrored.comparison.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
    mirrored.comparison.assert_changelogs()
    pairs = [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER] * 4
    assert changes(mirrored, "still", "h") == sorted([*[RowKind.DELETE] * 3, *pairs, RowKind.INSERT])


def test_heal_continues_a_table_whose_events_were_deleted(mirror_database: MirroredDatabaseBuilder) -> None:
    mirrored = mirror_database(tables=2, extra=FAST_MIRROR)
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log", ("--until-caught-up",))
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    mirrored.database.execute("UPDATE t00 SET label = 'lost' LIMIT 5", "DELETE FROM t00 LIMIT 1")
    delete_events(mirrored, "t00", older_than=ends(mirrored, "t00") + 6)
    mirror.start()
    assert mirror.wait(START_S) == 1, mirror.tail()
    report = command(mirrored, "heal", f"{mirrored.database.name}.t00")
    assert [r["phase"] for r in report["rereads"]] == ["done"]
    assert mirrored.comparison.differences() == {}
    mirrored.database.execute("UPDATE t00 SET label = 'after' LIMIT 5")
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    assert mirrored.comparison.differences() == {}


def ends(mirrored: MirroredDatabase, table: str) -> int:
    """Return the offset of the next event of a table that the lake lacks."""
    lake = mirrored.comparison.config.lake
    with open_catalog(lake) as catalog:
        marker = newest_marker(catalog.load_table((lake.namespace, table)))
    assert marker is not None
    return marker.next_offset(mirrored.topic(table), 0) or 0


def delete_events(mirrored: MirroredDatabase, table: str, *, older_than: int) -> None:
    """Delete the events before an offset from the topic of a table, once it has them."""
    servers, topic = mirrored.database.endpoints.bootstrap_servers, mirrored.topic(table)
    until(
        lambda: topics.ends(servers, mirrored.database.prefix).get(topic, 0) >= older_than,
        seconds=START_S,
        doing="events are in the topic",
    )
    # Without a reference to the client, its answers would never arrive.
    client = AdminClient({"bootstrap.servers": servers})
    for future in client.delete_records([TopicPartition(topic, 0, older_than)]).values():
        future.result(timeout=60)
