"""Compare a lake after a replay with its source's checksums; reads with PyIceberg, without Spark."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from replicator.config import Config
from replicator.consumer.files import change_column_of
from replicator.errors import ArchiveError, SchemaError
from replicator.lake.reading.catalog import tables_in
from replicator.lake.reading.reader import open_catalog
from replicator.lake.reading.table_metadata import newest_marker
from replicator.model.common import counted
from replicator.model.table import lake_names
from replicator.schema.types.table import Form
from replicator.verify.canonical import LakeColumn
from replicator.verify.lake_rows import Checksum, hash_rows

FORMAT: Final = "replicator-recording-source"
VERSION: Final = 2
SOURCE_NAME: Final = "source.json"


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """A table at the end of the recording: the compared columns, and the checksum of all rows."""

    columns: tuple[LakeColumn, ...]
    checksum: Checksum


@dataclass(frozen=True, slots=True)
class RecordedSource:
    """The source at the end of a recording.

    Attributes:
        changes: number of rows that were changed after the snapshot.
        tables: ``database.table`` → its state.
    """

    server_version: str
    binlog_file: str
    binlog_position: int
    changes: int
    tables: Mapping[str, RecordedTable]

    @classmethod
    def load(cls, archive: Path) -> Self:
        """Load the source.json next to an archive's manifest. Raises ArchiveError."""
        file = archive / SOURCE_NAME
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            if (document["format"], document["version"]) != (FORMAT, VERSION):
                raise ArchiveError(f"{file} is of a kind or version that this program cannot read")
            return cls(
                server_version=document["server_version"],
                binlog_file=document["position"]["file"],
                binlog_position=int(document["position"]["pos"]),
                changes=int(document["workload"]["changes"]),
                tables={name: _table(table) for name, table in document["tables"].items()},
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArchiveError(f"{file} cannot be used: {type(error).__name__}: {error}") from error


def _table(table: Mapping[str, Any]) -> RecordedTable:
    names = lake_names(column["name"] for column in table["columns"])
    columns = tuple(
        LakeColumn(
            column["name"],
            names[column["name"]],
            Form(column["form"]),
            column["type"],
            column["nullable"],
        )
        for column in table["columns"]
    )
    return RecordedTable(columns, Checksum(int(table["rows"]), int(table["checksum"], 16)))


Verdict = Literal["MATCH", "DIFFERENT", "MISSING"]


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """One table: rows in the lake and the source, changes by kind, and whether all rows are equal."""

    source: str
    table: str
    rows: int
    source_rows: int
    checksum: str
    source_checksum: str
    changes: Mapping[str, int]
    position: str | None
    verdict: Verdict
    reason: str = ""

    @property
    def match(self) -> bool:
        """Whether the lake's table equals the source's."""
        return self.verdict == "MATCH"


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result of a demo. `seconds` is the time of the replay, including the start of Spark."""

    folder: Path
    namespace: str
    catalog_uri: str
    events: int
    seconds: float
    tables: tuple[ComparedTable, ...]
    results: Mapping[str, int] = field(default_factory=dict)
    """Results of pipelines → number of their rows."""

    @property
    def match(self) -> bool:
        """Whether every table equals its source."""
        return all(table.match for table in self.tables)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for programs."""
        shown = {"folder": str(self.folder), "seconds": round(self.seconds, 3)}
        return {"version": 1, "match": self.match, **asdict(self), **shown}


def compare_lake(
    config: Config, source: RecordedSource, *, folder: Path, events: int, seconds: float
) -> DemoResult:
    """Compare every table of `source` with the lake's. Raises LakeUnavailable."""
    with open_catalog(config.lake) as catalog:
        mirrors = tables_in(catalog, config.lake.namespace)
        changelogs = tables_in(catalog, config.lake.changes_namespace)
        computed = tables_in(catalog, config.lake.pipelines_namespace)
        results = {
            f"{config.lake.pipelines_namespace}.{name}": table.scan().count()
            for name, table in computed.items()
        }
        tables = tuple(
            _compare(name, recorded, config.lake.namespace, mirrors, changelogs)
            for name, recorded in source.tables.items()
        )
        uri = str(catalog.properties.get("uri", ""))
    return DemoResult(folder, config.lake.namespace, uri, events, seconds, tables, results)


def _compare(
    source: str,
    recorded: RecordedTable,
    namespace: str,
    mirrors: Mapping[str, Table],
    changelogs: Mapping[str, Table],
) -> ComparedTable:
    name = source.partition(".")[2]
    mirror = mirrors.get(name)
    found, reason = Checksum(), "the lake has no such table"
    if mirror is not None:
        try:
            found = checksum(mirror.scan().to_arrow(), recorded.columns)
            reason = "" if found == recorded.checksum else _difference(found, recorded.checksum)
        except SchemaError as error:
            reason = error.message
    marker = None if mirror is None else newest_marker(mirror)
    return ComparedTable(
        source=source,
        table=f"{namespace}.{name}",
        rows=found.rows,
        source_rows=recorded.checksum.rows,
        checksum=_digits(found),
        source_checksum=_digits(recorded.checksum),
        changes=changes_by_kind(changelogs.get(name)),
        position=None if marker is None or marker.position is None else str(marker.position),
        verdict="MISSING" if mirror is None else "DIFFERENT" if reason else "MATCH",
        reason=reason,
    )


def checksum(rows: pa.Table, columns: Sequence[LakeColumn]) -> Checksum:
    """Return the checksum of rows of a mirror. Raises SchemaError: a column is missing, or has another type."""
    return Checksum(rows.num_rows, int(hash_rows(rows, columns).sum(dtype=np.uint64)))


def _digits(found: Checksum) -> str:
    return f"{found.hash:016x}"


def _difference(found: Checksum, wanted: Checksum) -> str:
    if found.rows != wanted.rows:
        return f"{counted(found.rows, 'row')} instead of {wanted.rows:,}"
    return "the same number of rows, with other values"


def changes_by_kind(changelog: Table | None) -> dict[str, int]:
    """Return change kind → number of rows of a changelog; empty if there is no changelog."""
    if changelog is None:
        return {}
    column = change_column_of(changelog.schema())
    kinds = changelog.scan(selected_fields=(f"{column}.kind",)).to_arrow().column(column)
    counted = Counter[str]()
    for chunk in kinds.chunks:
        for entry in pc.value_counts(chunk.field("kind")).to_pylist():
            counted[entry["values"]] += entry["counts"]
    return dict(sorted(counted.items()))
