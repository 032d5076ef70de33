"""Pipelines over the lake of one test."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import pyarrow as pa

from replicator.config import Config
from replicator.lake.recent_changes import RecentChanges
from replicator.pipelines.files import read_pipelines
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.log_ends import LogEnds, ends_reader
from replicator.pipelines.refresh.refresh import Refreshed
from replicator.pipelines.service import NotRefreshed, Pipelines, Result
from tests.oracle.model import Source, SourceTable
from tests.support.lake_harness import LakeHarness

_KEPT = ("INSERT", "UPDATE_AFTER")
_TYPES = {"bigint": pa.int64(), "int": pa.int64(), "varchar": pa.string()}


@dataclass
class PipelineLake:
    """The pipelines of a lake.

    Attributes:
        settings: the configuration; by default that of the lake.
        stays: whether one process writes the lake and refreshes the results all the time; else one for each refresh.
    """

    lake: LakeHarness
    settings: Config | None = None
    stays: bool = False
    _recent: RecentChanges = field(default_factory=RecentChanges)
    _opened: Pipelines | None = None

    def __post_init__(self) -> None:
        if self.stays:
            self.lake.adapt = lambda context: replace(context, recent=self._recent)

    @property
    def config(self) -> Config:
        return self.settings or self.lake.config()

    def define(self, name: str, text: str, ending: str = "sql") -> None:
        """Write the file of a pipeline."""
        folder = self.config.pipelines.folder
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.{ending}").write_text(textwrap.dedent(text).strip() + "\n")

    def pipelines(self) -> Pipelines:
        """Open the pipelines as a new process would, or as the one that stays did."""
        files = read_pipelines(self.config)
        if self._opened is None or not self.stays or self._opened.files != files:
            session = self.lake.session(self.config)
            self._opened = Pipelines.open(self.config, session, files, self._recent if self.stays else None)
        return self._opened

    def refresh(
        self, boundary: Boundary | None = None, *names: str, rebuild: Sequence[str] = (), retry: bool = True
    ) -> list[Result]:
        """Refresh pipelines to a boundary, by default the end of the archive."""
        ends = ends_reader(self.config)()
        if boundary is not None:
            ends = LogEnds(boundary, ends.ends, ends.prefix)
        return self.pipelines().refresh(ends, names, rebuild=rebuild, retry=retry)

    def refreshed(
        self, boundary: Boundary | None = None, rebuild: Sequence[str] = ()
    ) -> dict[str, Refreshed]:
        """Refresh all pipelines, which must succeed."""
        results = self.refresh(boundary, rebuild=rebuild)
        failed = [result for result in results if isinstance(result, NotRefreshed)]
        assert not failed, failed
        return {result.pipeline: result for result in results if isinstance(result, Refreshed)}

    def rows(self, name: str) -> Counter[tuple[Any, ...]]:
        """Return the rows of a result, as often as it has them."""
        found = self.lake.rows(name, "shop_pipelines")
        return Counter(tuple(v for k, v in row.items() if k != "_state") for row in found)


@dataclass
class Round:
    """Writes the log of a source, a part at a time, and lets the mirror catch up with it."""

    lake: LakeHarness
    source: Source
    written: int = 0

    def write(self, *, transactions: int, later: int = 0) -> tuple[int, int]:
        """Run transactions, and `later` ones after the position that is returned."""
        self.source.run(transactions)
        at, truncates = self.source.position, self.source.truncates
        # Refreshes wait for the boundary to pass a TRUNCATE.
        self.source.truncates = False
        self.source.run(later)
        self.source.truncates = truncates
        partitions = {table.topic: self.source.partitions for table in self.source.tables}
        self.lake.write(self.source.records[self.written :], partitions=partitions)
        self.written = len(self.source.records)
        self.lake.catch_up()
        return at


def rows_at(table: SourceTable, at: tuple[int, int] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a source table before a position, number of the binlog file and offset; None for the end."""
    rows: dict[Any, dict[str, Any]] = {}
    copies = Counter[tuple[tuple[str, Any], ...]]()
    for change in table.changes:
        place = (int(change.file.rpartition(".")[2]), change.pos)
        if at is not None and place >= at:
            continue
        row = change.row or {}
        if change.kind == "TRUNCATE":
            rows.clear()
            copies.clear()
        elif not table.key:
            copies[tuple(row.items())] += 1 if change.kind in _KEPT else -1
        elif change.kind in _KEPT:
            rows[table.key_of(row)] = row
        elif change.kind == "DELETE":
            del rows[table.key_of(row)]
    return [*rows.values(), *(dict(row) for row in copies.elements())]


def oracle(
    query: str, tables: Iterable[tuple[str, SourceTable, Sequence[dict[str, Any]]]]
) -> Counter[tuple[Any, ...]]:
    """Return what DuckDB computes of rows, each with the name of its table."""
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA shop")
        for name, table, rows in tables:
            columns = {c.name: _TYPES[c.kind] for c in table.columns if c.kind in _TYPES}
            arrow = pa.table({n: pa.array([row[n] for row in rows], kind) for n, kind in columns.items()})
            connection.register("given", arrow)
            connection.execute(f'CREATE TABLE shop."{name}" AS SELECT * FROM given')
        return Counter(connection.execute(query).fetchall())


def duck(query: str) -> str:
    """Return a query of the tests as DuckDB reads it."""
    return (
        query.replace("`code``x`", '"code`x"')
        .replace("`a name`", '"a name"')
        .replace("sum(id)", "sum(id)::bigint")
    )


def boundary(at: tuple[int, int]) -> Boundary:
    """Return the boundary at a binlog file's number and an offset."""
    return Boundary(f"mysql-bin.{at[0]:06d}", at[1])
