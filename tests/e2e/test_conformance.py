"""Compare every column type in the lake with `SELECT`, by snapshot and by binlog, in every encoding."""

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from replicator.model.table import TableId
from replicator.operations.connector import register
from replicator.sources.mysql.definitions import source_definition
from tests.support import topics
from tests.support.canonical_rows import SourceTable, canonical_value, describe, use_utc
from tests.support.conformance import TYPE_PATHS, ConformancePage, Part
from tests.support.encodings import ENCODINGS, Encoding
from tests.support.golden import GoldenTable, write_golden
from tests.support.mirror import COMMAND, FAST_MIRROR, until
from tests.support.reports import LEFT_OUT
from tests.support.source import SourceDatabase
from tests.workload.column_types import ADDED, MODES, TABLES, TypeCase, TypeTable

Row = Mapping[str, bytes | None]
Rows = dict[int, Row]

INSERTED, UPDATED, DELETED = 100, 200, 300
"""First key of the rows that were inserted, updated and deleted after the snapshot."""


@dataclass
class ColumnComparison:
    """The values of one column that differ from the source, in the order in which they were found."""

    differing: dict[str, None] = field(default_factory=dict)

    def compare(self, wanted: bytes | None, found: bytes | None) -> None:
        if wanted != found:
            self.differing[f"{_shown(wanted)} → {_shown(found)}"] = None

    @property
    def outcome(self) -> str:
        return "; ".join(list(self.differing)[:3]) or "same"


def _shown(value: bytes | None) -> str:
    if value is None:
        return "NULL"
    text = value.decode(errors="replace")
    return text if len(text) <= 50 else f"{text[:47]}..."


def available(table: TypeTable, database: SourceDatabase) -> TypeTable:
    """Return the table with only the columns whose types this server has."""
    return replace(table, cases=tuple(case for case in table.cases if database.has_version(case.since)))


def left_out(tables: Iterable[TypeTable], database: SourceDatabase) -> list[tuple[str, object]]:
    """Return properties of the test's report: the columns whose types this server lacks."""
    return [
        (LEFT_OUT, f"{case.label} needs MySQL {case.since} or newer, not {database.endpoints.mysql_version}")
        for table in tables
        for case in table.cases
        if not database.has_version(case.since)
    ]


def written_before(tables: Sequence[TypeTable]) -> list[str]:
    """Return the statements before the snapshot."""
    statements = [MODES]
    for table in tables:
        statements.append(table.create())
        for row in range(table.rows):
            statements += [table.insert(row, row), table.insert(UPDATED + row, (row + 1) % table.rows)]
        statements.append(table.insert(DELETED, 1))
    return [*statements, "CREATE TABLE added (id INT PRIMARY KEY)", "INSERT INTO added VALUES (1), (2)"]


def written_after(tables: Sequence[TypeTable]) -> list[str]:
    """Return the statements after the snapshot."""
    statements = [MODES]
    for table in tables:
        later = replace(table, name=f"{table.name}_later")
        statements.append(later.create())
        for row in range(table.rows):
            statements += [
                later.insert(row, row),
                table.insert(INSERTED + row, row),
                table.update(UPDATED + row, row),
            ]
        statements.append(f"DELETE FROM {table.name} WHERE id = {DELETED}")
    columns = ", ".join(f"ADD COLUMN `{name}` {definition}" for name, definition, _ in ADDED)
    return [*statements, f"ALTER TABLE added {columns}", "INSERT INTO added (id) VALUES (3)"]


def expected_records(tables: Sequence[TypeTable], *, later: bool) -> dict[str, int]:
    """Return table → number of records in its topic."""
    counts = {t.name: 2 * t.rows + 1 for t in tables} | {"added": 2}
    if later:
        # A delete is two records: the event and the tombstone.
        counts |= {t.name: counts[t.name] + 2 * t.rows + 2 for t in tables} | {"added": 3}
        counts |= {f"{t.name}_later": t.rows for t in tables}
    return counts


def await_records(database: SourceDatabase, wanted: Mapping[str, int]) -> None:
    def arrived() -> bool:
        found = topics.ends(database.endpoints.bootstrap_servers, database.prefix)
        return all(found.get(topic(database, name), 0) >= count for name, count in wanted.items())

    until(arrived, seconds=180, doing="the connector writes its events")


def topic(database: SourceDatabase, table: str) -> str:
    return f"{database.prefix}.{database.name}.{table}"


def execute(database: SourceDatabase, statements: Sequence[str]) -> None:
    with database.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def source(database: SourceDatabase, table: str) -> tuple[SourceTable, Rows]:
    """Return a source table and its rows by key."""
    with database.connect(charset="utf8mb4") as connection:
        use_utc(connection)
        described = describe(connection, database.name, table)
        with connection.cursor() as cursor:
            cursor.execute(described.select)
            rows = [
                dict(zip([c.name for c in described.columns], row, strict=True)) for row in cursor.fetchall()
            ]
    return described, {row["id"]: canonical(described, row) for row in rows}


def canonical(table: SourceTable, row: Mapping[str, Any]) -> Row:
    return {c.name: canonical_value(c.kind, row[c.name]) for c in table.columns}


def compare_table(
    part: Part, encoding: Encoding, table: TypeTable, database: SourceDatabase, before: Rows, lake: "Lake"
) -> GoldenTable:
    described, wanted = source(database, table.name)
    found, changes = lake.rows(described), lake.changes(described)
    later, wanted_later = source(database, f"{table.name}_later")
    found_later = lake.rows(later)
    assert (found.keys(), found_later.keys()) == (wanted.keys(), wanted_later.keys())
    for case in table.cases:
        name = table.column(case)
        paths = {path: ColumnComparison() for path in TYPE_PATHS}
        for key, row in wanted.items():
            paths["snapshot" if key < INSERTED else "binlog"].compare(row[name], found[key][name])
        for key, row in changes.items():
            paths["binlog"].compare(before[key][name], row[name])
        for key, row in wanted_later.items():
            paths["new table"].compare(row[name], found_later[key][name])
        record(part, encoding, case, lake.types(table.name)[name], paths)
    assert_definition(lake.config, lake, described)
    kinds = {c.name: str(c.kind) for c in described.columns}
    return GoldenTable(database, table, wanted, kinds, encoding.name)


def assert_definition(config: Path, lake: "Lake", table: SourceTable) -> None:
    """Assert that the lake has the types that the source defines."""
    defined = source_definition(load(config).source, TableId(table.database, table.name))
    assert defined is not None
    assert defined.key == table.key
    assert {c.name: str(c.type) for c in defined.columns} == lake.types(table.name)


def record(
    part: Part, encoding: Encoding, case: TypeCase, lake_type: str, paths: Mapping[str, ColumnComparison]
) -> None:
    part.record(case.label, "Iceberg", lake_type)
    for path, comparison in paths.items():
        assert case.known or comparison.outcome == "same", (
            f"{case.label}, {path}, {encoding.name}: {comparison.outcome}"
        )
        part.record(case.label, f"{path}, {encoding.name}", comparison.outcome)
    if case.known:
        part.record(case.label, "why", case.known)


@dataclass(frozen=True)
class Lake:
    """Read the mirror's tables with PyIceberg."""

    config: Path

    def _read(self, changes: bool, table: str) -> Any:
        lake = load(self.config).lake
        with open_catalog(lake) as catalog:
            return catalog.load_table((lake.changes_namespace if changes else lake.namespace, table))

    def rows(self, table: SourceTable) -> Rows:
        found = self._read(False, table.name).scan().to_arrow().to_pylist()
        assert len({row["id"] for row in found}) == len(found)
        return {row["id"]: canonical(table, row) for row in found}

    def changes(self, table: SourceTable) -> Rows:
        """Return the images of rows before they were updated or deleted."""
        found = self._read(True, table.name).scan().to_arrow().to_pylist()
        kinds = ("UPDATE_BEFORE", "DELETE")
        return {row["id"]: canonical(table, row) for row in found if row["_change"]["kind"] in kinds}

    def types(self, table: str) -> dict[str, str]:
        return {f.name: str(f.field_type) for f in self._read(False, table).schema().fields}


@pytest.mark.parametrize("most", [10_000, 5], ids=["driver", "workers"])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_lake_values_equal_the_source_except_known_differences(
    encoding: Encoding,
    most: int,
    source_database: SourceDatabase,
    tmp_path: Path,
    conformance: ConformancePage,
    request: pytest.FixtureRequest,
) -> None:
    database = source_database
    tables = [available(table, database) for table in TABLES]
    request.node.user_properties.extend(left_out(TABLES, database))
    (tmp_path / "lake").mkdir()
    config = tmp_path / "mirror.toml"
    lines = f"{encoding.log(database)}\n[lake]"
    extra = FAST_MIRROR.replace("[apply]", f"[apply]\ndriver_max_events = {most}")
    config.write_text(database.config_text(tmp_path, extra).replace("[lake]", lines))
    execute(database, written_before(tables))
    register(load(config))
    await_records(database, expected_records(tables, later=False))
    before = {table.name: source(database, table.name)[1] for table in tables}
    execute(database, written_after(tables))
    await_records(database, expected_records(tables, later=True))
    ran = subprocess.run(
        [COMMAND, "run", "-c", str(config), "--until-caught-up"],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    files = [file.name for file in tmp_path.rglob("data/*.parquet")]
    # Those of workers begin with the label of their batch.
    assert any(re.match("[0-9a-f]{32}-", name) for name in files) == (most == 5)
    lake = Lake(config)
    labels = [case.label for table in tables for case in table.cases]
    columns = ["Iceberg", "why", *(f"{path}, {encoding.name}" for path in TYPE_PATHS)]
    with (
        conformance.part("Column types", columns=columns, rows=labels) as types,
        conformance.part("Defaults of added columns", columns=[encoding.name, "why"]) as defaults,
    ):
        golden = [compare_table(types, encoding, t, database, before[t.name], lake) for t in tables]
        described, wanted = source(database, "added")
        found = lake.rows(described)
        assert found.keys() == wanted.keys()
        for name, definition, known in ADDED:
            comparison = ColumnComparison()
            for key in (1, 2):
                comparison.compare(wanted[key][name], found[key][name])
            assert found[3][name] == wanted[3][name], f"{name} of a row that came later"
            # A current time differs in each run.
            outcome = "NULL" if comparison.differing and found[1][name] is None else comparison.outcome
            assert outcome == "same" or known, f"{name}: {comparison.outcome}"
            defaults.record(definition, encoding.name, outcome)
            if known:
                defaults.record(definition, "why", known)
    if conformance.write and encoding.is_text:
        for table in golden:
            write_golden(table)
