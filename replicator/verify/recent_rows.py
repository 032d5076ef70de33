"""Compare rows that the mirror got recently with the source: a sample, row by row, without waiting for a position.

A data file that the mirror got since the last look has rows that changed recently. Some of them are read in the source,
in one consistent transaction for all tables. A row that is equal is right. One that is not may have changed meanwhile:
it is looked at again, as the mirror has it then, and suspected only if it is never equal. Only `mirror_check` decides
whether a suspected row is wrong, at one position. So a look costs some milliseconds for each table, on both sides.
"""

import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import FileScanTask, Table
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from replicator.config import Config
from replicator.config.column_rules import ColumnRuleBook
from replicator.consumer.files import FileReader, FilesGone
from replicator.errors import ReplicatorError, SourceUnavailable
from replicator.model.table import TableId
from replicator.verify.compared_table import ComparedTable, compared_table
from replicator.verify.interruption import Interruption
from replicator.verify.lake_position import lake_tables, usual_table
from replicator.verify.lake_rows import Row, no_rows
from replicator.verify.later_changes import nothing_later
from replicator.verify.row_comparison import RowComparison, rows_of
from replicator.verify.schema_comparison import mirror_key
from replicator.verify.source_side import SourceSide, open_snapshot

_MOST_FILES: Final = 2
"""New files of a table that are read at a look, at most; all of them if rows are suspected."""
_MOST_FILE_ROWS: Final = 100_000
"""A file with more rows was merged from others, or is a backlog; what changed recently is a small part of it."""
_MOST_FILE_BYTES: Final = 16_000_000
_LOOKS: Final = 3
"""Number of looks after which a row that was never equal is suspected for good."""
_MOST_OPEN: Final = 100
"""Rows of a table that are looked at again, at most."""
_DESCRIBED_S: Final = 300.0
"""How long the description of a table is used. A statement with an older one fails, or leaves out new columns."""
_CLEARED_S: Final = 3600.0
"""How long a key is left out that was suspected and is right: it changes all the time."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a look found.

    Attributes:
        compared: table → number of its rows that were compared.
        suspected: table → the keys of rows that were equal at none of several looks, in the columns of the lake.
        has_open: whether rows must be looked at again soon.
    """

    compared: Mapping[TableId, int]
    suspected: Mapping[TableId, pa.Table]
    has_open: bool


@dataclass(slots=True)
class _Open:
    """A row that was not equal when it was last looked at.

    Attributes:
        looks: at how many looks.
        key: its key columns, one row.
        place: the data file in which it was.
    """

    looks: int
    key: pa.Table
    place: str


@dataclass(slots=True)
class _Known:
    """What is known of a table from earlier looks.

    Attributes:
        files: the data files that it had at the last look; before the first one, all count as new.
        table: how it is compared; None if it has to be described again.
        described: when it was, by the monotonic clock.
        fields: the mirror's columns then.
        open: the rows that were not equal, by key.
        cleared: key → when it was found to be right although it was suspected.
    """

    files: frozenset[str] = frozenset()
    table: ComparedTable | None = None
    described: float = 0.0
    fields: tuple[str, ...] = ()
    open: dict[Row, _Open] = field(default_factory=dict)
    cleared: dict[Row, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of a data file of a mirror."""

    place: str
    rows: pa.Table

    def by_key(self, table: ComparedTable) -> Iterator[tuple[Row, Row, int]]:
        """Yield key, row, and place of each row."""
        places = [table.columns.index(column) for column in table.key]
        for number, row in enumerate(rows_of(self.rows, table.columns)):
            yield tuple(row[place] for place in places), row, number

    def sample(self, most: int) -> "_Part":
        """Return `most` rows of it at most."""
        if self.rows.num_rows <= most:
            return self
        return _Part(self.place, self.rows.take(sorted(random.sample(range(self.rows.num_rows), most))))


class RecentRows:
    """Looks at rows that changed recently. For one thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._rules = ColumnRuleBook(config)
        self._known: dict[TableId, _Known] = {}

    def look(
        self, catalog: Catalog, tables: Collection[TableId], rows: int, interruption: Interruption
    ) -> Look:
        """Compare at most `rows` rows that changed recently, and again those that were not equal at the last look.

        Raises:
            SourceError, LakeUnavailable: the source or the lake does not answer.
        """
        read = dict[TableId, tuple[Table, list[_Part]]]()
        wanted = sorted({*tables, *(t for t, known in self._known.items() if known.open)})
        share = max(1, rows // max(1, len(wanted)))
        for table in wanted:
            interruption.go_on()
            if (mirror := self._load(catalog, table)) is not None and (
                parts := self._read(table, mirror, self._files(table, mirror), share)
            ):
                read[table] = (mirror, parts)
        # The source is read after the lake, so that it has all that the lake has.
        compared, suspected = dict[TableId, int](), dict[TableId, pa.Table]()
        if read:
            with open_snapshot(self._config) as connection:
                for table, (mirror, parts) in read.items():
                    interruption.go_on()
                    compared[table] = self._compare(connection, table, mirror, parts, share)
                    if (keys := self._suspected(table)) is not None:
                        suspected[table] = keys
        return Look(compared, suspected, any(known.open for known in self._known.values()))

    def clear(self, table: TableId, keys: pa.Table) -> None:
        """Note that suspected rows are right, although they were equal at no look."""
        if (known := self._known.get(table)) is None or known.table is None:
            return
        now = time.monotonic()
        known.cleared = {key: at for key, at in known.cleared.items() if at > now - _CLEARED_S}
        known.cleared |= dict.fromkeys(rows_of(keys, known.table.key), now)

    def forget(self, table: TableId) -> None:
        """Forget the rows of a table that were not equal: it is corrected now."""
        if (known := self._known.get(table)) is not None:
            known.open.clear()

    def _load(self, catalog: Catalog, table: TableId) -> Table | None:
        """Load the mirror of a table; None if there is none."""
        mirror = usual_table(catalog, self._config, self._config.lake.namespace, table)
        if mirror is None and (found := lake_tables(catalog, self._config, [table])):
            mirror = found[table].mirror
        if mirror is None:
            self._known.pop(table, None)
        else:
            self._known.setdefault(table, _Known())
        return mirror

    def _files(self, table: TableId, mirror: Table) -> list[FileScanTask]:
        """Return the files to read: some new ones, and those with rows that were not equal at the last look."""
        known = self._known[table]
        try:
            tasks = list(mirror.scan().plan_files()) if mirror.current_snapshot() is not None else []
        except (NotImplementedError, ValueError, FileNotFoundError):
            return []  # equality deletes, which PyIceberg cannot read; or the snapshot is gone
        before, known.files = known.files, frozenset(task.file.file_path for task in tasks)
        places = {found.place for found in known.open.values()}
        new = [
            task
            for task in tasks
            if task.file.file_path not in before
            and task.file.record_count <= _MOST_FILE_ROWS
            and task.file.file_size_in_bytes <= _MOST_FILE_BYTES
        ]
        if not known.open:
            return random.sample(new, min(_MOST_FILES, len(new)))
        return new + [task for task in tasks if task.file.file_path in places & before]

    def _read(self, table: TableId, mirror: Table, tasks: Sequence[FileScanTask], most: int) -> list[_Part]:
        """Return rows of files that are not deleted: all if rows are open, else a sample of `most`."""
        known, schema = self._known[table], mirror.schema()
        if known.table is not None and known.fields == _names(mirror):
            schema = schema.select(*(c.lake for c in known.table.columns))
        reader, found = FileReader.of(mirror, schema), []
        for task in tasks:
            try:
                parts = list(reader.batches(task.file, list(task.delete_files)))
            except (FilesGone, FileNotFoundError):
                continue
            if parts:
                part = _Part(task.file.file_path, pa.concat_tables(parts))
                found.append(part if known.open else part.sample(max(1, most // len(tasks))))
        # A row whose file is gone is gone too, or in a new file.
        return found or ([_Part("", mirror.schema().as_arrow().empty_table())] if known.open else [])

    def _compare(
        self, connection: Connection, table: TableId, mirror: Table, parts: list[_Part], most: int
    ) -> int:
        """Compare some rows of a table, and those that were not equal. Return their number."""
        known = self._known[table]
        try:
            described = self._described(connection, table, mirror)
            if not described.key or not all(c.has_literals for c in described.key):
                return 0
            return self._compare_rows(connection, known, described, mirror, parts, most)
        except SourceUnavailable:
            raise
        except (ReplicatorError, DBAPIError):
            # Its definition changed, or it cannot be compared in this way.
            known.table = None
            known.open.clear()
            return 0

    def _compare_rows(
        self,
        connection: Connection,
        known: _Known,
        table: ComparedTable,
        mirror: Table,
        parts: list[_Part],
        most: int,
    ) -> int:
        found = {key: (row, part, at) for part in parts for key, row, at in part.by_key(table)}
        if known.open:
            more = min(max(0, most - len(known.open)), len(found))
            chosen = set(random.sample(list(found), more)) | known.open.keys()
            found = {key: value for key, value in found.items() if key in chosen}
        wanted = [key for key in dict.fromkeys([*known.open, *found]) if key not in known.cleared]
        places = [table.columns.index(column) for column in table.key]
        theirs = {
            tuple(row[place] for place in places): row
            for row in SourceSide.of([connection], table).rows_with(wanted)
        }
        same = RowComparison(table, nothing_later(table, no_rows(mirror, table.columns))).same
        unequal = dict[Row, _Open]()
        for key in wanted:
            row, part, at = found.get(key, (None, None, 0))
            if same(theirs.get(key), row):
                continue
            if (before := known.open.get(key)) is not None:
                place = before.place if part is None else part.place
                unequal[key] = _Open(before.looks + 1, before.key, place)
            elif part is not None:
                columns = [column.lake for column in table.key]
                unequal[key] = _Open(1, part.rows.select(columns).slice(at, 1), part.place)
        known.open = dict(list(unequal.items())[:_MOST_OPEN])
        return len(wanted)

    def _suspected(self, table: TableId) -> pa.Table | None:
        """Take the keys of rows that were equal at no look; None if there are none."""
        known = self._known[table]
        taken = {key: found for key, found in known.open.items() if found.looks >= _LOOKS}
        if not taken:
            return None
        known.open = {key: found for key, found in known.open.items() if key not in taken}
        return pa.concat_tables([found.key for found in taken.values()])

    def _described(self, connection: Connection, table: TableId, mirror: Table) -> ComparedTable:
        known, names = self._known[table], _names(mirror)
        is_fresh = known.described + _DESCRIBED_S > time.monotonic()
        if known.table is None or not is_fresh or names != known.fields:
            found = compared_table(connection, self._config, self._rules, table, mirror_key(mirror))
            known.table, known.fields = found.in_lake(set(names)), names
            known.described = time.monotonic()
        return known.table


def _names(mirror: Table) -> tuple[str, ...]:
    return tuple(field.name for field in mirror.schema().fields)
