"""Read new tables from a real MySQL while they change."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from replicator.lake.reading.reader import open_catalog
from tests.e2e.test_conformance import INSERTED, available, execute, source
from tests.support.canonical_rows import SourceTable, canonical_value
from tests.support.mirror import FAST_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import await_rereads
from tests.support.server_settings import ENVIRONMENTS, USUAL, Environment, server_settings
from tests.support.source import SourceDatabase
from tests.workload.column_types import MODES, TABLES, TypeTable

BY_MIRROR = f"""
[bootstrap]
by = "mirror"
chunk_rows = 20
{FAST_MIRROR}
"""
LARGE = re.compile(
    r"(TEXT|(MEDIUM|LONG)TEXT|BLOB|(MEDIUM|LONG)BLOB|LONG\b|JSON|VECTOR|(MULTI)?(POINT|LINESTRING|POLYGON)|GEOM)"
)
CRASH_POINTS = (
    "after-reread-start",
    "before-reread-commit",
    "after-reread-commit",
    "between-reread-commits",
    "after-reread-rename",
)


@pytest.mark.fault(
    "The mirror is killed while it reads new tables from the source, at each failpoint",
    area="Process",
    on="MySQL, Debezium, Kafka",
    outcome="reading continues with the next part",
)
@pytest.mark.long
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
        mirrored.assert_verified()
        assert mirror.stop() == 0, mirror.tail()
    finally:
        mirror.kill()
    mirrored.comparison.assert_changelogs()


@pytest.mark.parametrize("environment", [USUAL, *ENVIRONMENTS], ids=str)
@pytest.mark.long
def test_bootstrap_reads_each_value_as_events_have_it(
    mirror_database: MirroredDatabaseBuilder,
    source_database: SourceDatabase,
    environment: Environment,
) -> None:
    with server_settings(source_database, time_zone=environment.time_zone, sql_mode=environment.sql_mode):
        assert_reads_as_events(mirror_database(tables=1, extra=BY_MIRROR), environment.client_zone)


def assert_reads_as_events(mirrored: MirroredDatabase, zone: str) -> None:
    tables = [half for table in TABLES for half in halves(available(table, mirrored.database))]
    read = [table.insert(row, row) for table in tables for row in range(table.rows)]
    execute(mirrored.database, [MODES, *(table.create() for table in tables), *read])
    with running(mirrored.config, mirrored.folder / "out.log", TZ=zone) as mirror:
        await_rereads(mirror, len(tables) + 1)
        streamed = [table.insert(INSERTED + row, row) for table in tables for row in range(table.rows)]
        execute(mirrored.database, [MODES, *streamed])
        wanted = {table.name: 2 * table.rows for table in tables}
        until(lambda: row_counts(mirrored, tables) == wanted, seconds=START_S, doing="events are applied")
        assert mirror.stop() == 0, mirror.tail()
    readers = {line["table"]: line["by"] for line in mirror.lines() if line["event"] == "reading rows"}
    found: dict[str, tuple[bytes | None, ...]] = {}
    for table in tables:
        reader = "Spark" if table.name.endswith("_large") else "the driver"
        assert readers[f"{mirrored.database.name}.{table.name}"] == reader, table.name
        described, wanted_rows = source(mirrored.database, table.name)
        rows = lake_rows(mirrored, described)
        for row in range(table.rows):
            by_read, by_events = rows[row], rows[INSERTED + row]
            for case in table.cases:
                name = table.column(case)
                values = (by_read[name], wanted_rows[row][name], by_events[name])
                # Of some values, events have others than the source; generated columns depend on the key.
                if len(set(values[: 2 if case.generated else 3])) > 1 and not case.known:
                    found[f"{table.name}, {case.label}, {row}"] = values
    assert not found, "\n".join(f"{place}: {values}" for place, values in found.items())


def halves(table: TypeTable) -> list[TypeTable]:
    """Divide the columns of a table into those of rows that the driver reads, and those that it leaves to Spark."""
    large = tuple(case for case in table.cases if LARGE.match(case.definition))
    small = tuple(case for case in table.cases if case not in large)
    parts = ((f"{table.name}_large", large), (f"{table.name}_small", small))
    return [replace(table, name=name, cases=cases) for name, cases in parts if cases]


def row_counts(mirrored: MirroredDatabase, tables: Sequence[TypeTable]) -> dict[str, int]:
    lake = mirrored.comparison.config.lake
    with open_catalog(lake) as catalog:
        return {t.name: catalog.load_table((lake.namespace, t.name)).scan().count() for t in tables}


def lake_rows(mirrored: MirroredDatabase, table: SourceTable) -> dict[int, dict[str, bytes | None]]:
    """Return key → column → canonical value."""
    lake = mirrored.comparison.config.lake
    with open_catalog(lake) as catalog:
        rows = catalog.load_table((lake.namespace, table.name)).scan().to_arrow().to_pylist()
    return {row["id"]: {c.name: canonical_value(c.kind, row[c.name]) for c in table.columns} for row in rows}
