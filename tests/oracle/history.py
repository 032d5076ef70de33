"""A model source that keeps each table's state after every record of its log, to compare a mirror at any marker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.oracle.events import ColumnSpec, Place
from tests.oracle.model import Record, Row, Source, SourceTable

Moves = Mapping[tuple[str, tuple[str, int, int]], tuple[str, int]]
"""Op, and file, offset and row of a change → its file and offset in the binlog of another server."""


@dataclass(frozen=True)
class Version:
    """A table after one record of the log.

    Attributes:
        records: number of records in the log up to that one.
        changes: number of rows of the changelog then.
        is_definition: whether the record defines the columns, and is none of the table's topic.
        is_part: whether the record is in the middle of a snapshot, so that a mirror may show its rows or not yet.
    """

    records: int
    columns: tuple[ColumnSpec, ...]
    rows: tuple[dict[str, Any], ...]
    changes: int
    is_definition: bool = False
    is_part: bool = False

    def table(self, name: str, key: tuple[str, ...]) -> SourceTable:
        return SourceTable(name, key, list(self.columns), {(i,): row for i, row in enumerate(self.rows)})


class RecordedTables(Source):
    """Executes random changes as `Source` does. `versions` is table → its versions, in the order of the log."""

    def start(self, shapes: Sequence[str], rows: int) -> None:
        self.versions: dict[str, list[Version]] = {}
        super().start(shapes, rows)
        for table in self.tables:
            self._end_snapshot(table, list(table.rows.values()))

    def snapshot(self, table: SourceTable) -> None:
        """Read the rows of a table again, as a new connector does. The table must have rows."""
        # Unlike that of an ad-hoc snapshot, their place has no server's id.
        place = replace(self._place(), server_id=0, gtid=None)
        Source._define(self, table, "CREATE", place)
        self._read(table, list(table.rows.values()), place)

    def rows_at(self, name: str, records: int) -> Sequence[Row]:
        """Return the rows of a table after this number of records."""
        return [v for v in self.versions[name] if v.records <= records][-1].rows

    def snapshot_again(self, since: int, at: tuple[int, int], again: Sequence[Record], moved: Moves) -> None:
        """Read all tables as a replica has them that lacks the records from `since` on, which it sends then.

        Args:
            since: number of a record that begins a transaction. No definition follows, and every table had rows.
            at: the file and offset in the replica's binlog that the snapshot has.
            again: the records from `since` on, as the replica has them.
            moved: op and place of each change from there on → its file and offset in the replica's binlog.
        """
        end = {table.name: len(table.changes) for table in self.tables}
        behind = {name: [v for v in known if v.records <= since][-1] for name, known in self.versions.items()}
        later = {name: [v for v in known if v.records > since] for name, known in self.versions.items()}
        place = Place(*at, 0, self._ts + 5_000, server_id=0)
        for table in self.tables:
            # The definition changes no table, so there is no version of it.
            Source._define(self, table, "CREATE", place)
        for table in self.tables:
            self._read(table, behind[table.name].rows, place)
        shift = len(self.records) - since
        self.records += again
        for table in self.tables:
            first = behind[table.name].changes
            changes = table.changes[first : end[table.name]]
            more = len(table.changes) - first
            self.versions[table.name] += [
                replace(v, records=v.records + shift, changes=v.changes + more) for v in later[table.name]
            ]
            for change in changes:
                file, pos = moved[change.op, change.place]
                table.changes.append(replace(change, file=file, pos=pos))

    def _read(self, table: SourceTable, rows: Sequence[Row], place: Place) -> None:
        for row in rows:
            self._log(table, "r", place, after=row)
        last = self.records[-1]
        assert last.value is not None
        self.records[-1] = replace(last, value=last.value.replace(b'"snapshot":"true"', b'"snapshot":"last"'))
        self._end_snapshot(table, rows)

    def insert_into(self, table: SourceTable) -> None:
        """Execute statements until one has inserted a row."""
        known = len(self.records)
        while len(self.records) == known:
            self._insert(table)

    def candidates(self, name: str, records: int) -> list[Version]:
        """Return the versions that a mirror may have that has read this number of records, and no later event.

        There are several if definitions follow its last event: they may be applied with the next event only.
        """
        versions = self.versions[name]
        events = [i for i, v in enumerate(versions) if not v.is_definition and v.records <= records]
        if not events:
            return []
        found = [versions[events[-1]]]
        for version in versions[events[-1] + 1 :]:
            if not version.is_definition:
                break
            found.append(version)
        return found

    def _log(
        self,
        table: SourceTable,
        op: str,
        place: Place,
        *,
        before: Row | None = None,
        after: Row | None = None,
    ) -> None:
        # A tombstone may follow.
        records = len(self.records) + 1
        super()._log(table, op, place, before=before, after=after)
        rows = list(self.versions[table.name][-1].rows)
        if op == "t":
            rows = []
        if before is not None:
            rows.remove(dict(before))
        if after is not None:
            rows.append(dict(after))
        self._note(table, Version(records, (), tuple(rows), 0, is_part=op == "r"))

    def _define(self, table: SourceTable, kind: str, place: Place, action: str = "...") -> None:
        super()._define(table, kind, place, action)
        rows = [] if kind == "CREATE" else [dict(row) for row in table.rows.values()]
        self._note(table, Version(len(self.records), (), tuple(rows), 0, is_definition=True))

    def _note(self, table: SourceTable, version: Version) -> None:
        whole = replace(version, columns=tuple(table.columns), changes=len(table.changes))
        self.versions.setdefault(table.name, []).append(whole)

    def _end_snapshot(self, table: SourceTable, rows: Sequence[Row]) -> None:
        versions = self.versions[table.name]
        versions[-1] = replace(versions[-1], rows=tuple(dict(row) for row in rows), is_part=False)
