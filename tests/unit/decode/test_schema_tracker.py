"""Table schemas as the schema-change topic defines them: versions, drops and exchanged names."""

import json
from typing import Any

import pytest

from replicator.decode.json.format import JsonFormat
from replicator.decode.schemas.resolution import resolve
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.errors import MissingSchema
from replicator.model.events import RawRecord
from replicator.model.table import TableId
from tests.oracle.events import ColumnSpec, Place, schema_change_event


class TestSchemaTracker:
    """The writer schemas that events may have according to definitions."""

    TABLE = TableId("shop", "t")
    FIRST = (ColumnSpec("id", "int", False),)
    SECOND = (*FIRST, ColumnSpec("extra", "int", False, "7"))

    def tracker(self, *places: tuple[Place, tuple[ColumnSpec, ...]]) -> SchemaTracker:
        tracker = SchemaTracker(JsonFormat())
        tracker.add_schema_changes(
            RawRecord("p", 0, i, 0, None, schema_change_event(binlog_key, "t", columns, ["id"], kind="ALTER"))
            for i, (binlog_key, columns) in enumerate(places)
        )
        return tracker

    def spans(self, tracker: SchemaTracker, since: int | None = None) -> list[tuple[Any, Any, int]]:
        return [
            (e.first and e.first.at, e.end and e.end.at, len(e.schema.columns))
            for e in tracker.discovery.writer_schemas(self.TABLE, since)
        ]

    def test_tracker_returns_records_that_are_not_schema_changes(self) -> None:
        values = (
            b"garbage{",
            None,
            schema_change_event(Place(1, 5), "t", self.FIRST, ["id"], kind="CREATE"),
            b"{}",
        )
        tracker, records = (
            SchemaTracker(JsonFormat()),
            [RawRecord("p", 0, i, 7, b"k", value) for i, value in enumerate(values)],
        )
        bad = tracker.add_schema_changes(records)
        assert [b.record for b in bad] == [records[0], records[3]]
        assert all("not a schema-change event" in b.reason for b in bad)
        assert self.spans(tracker) == [(None, None, 1)]

    def test_tracker_raises_missing_schema_when_there_is_no_definition(self) -> None:
        with pytest.raises(MissingSchema):
            SchemaTracker(JsonFormat()).discovery.writer_schemas(self.TABLE, None)

    def test_tracker_applies_a_single_definition_to_all_positions(self) -> None:
        assert self.spans(self.tracker((Place(1, 5), self.FIRST))) == [(None, None, 1)]

    def test_tracker_has_two_writer_schemas_after_an_alter(self) -> None:
        tracker = self.tracker((Place(1, 5), self.FIRST), (Place(1, 90), self.SECOND))
        at = (1 << 40) + 90
        assert self.spans(tracker) == [(None, at, 1), (at, None, 2)]
        assert self.spans(tracker, at - 1) == [(None, at, 1), (at, None, 2)]
        # Events after the ALTER need only the newer schema.
        assert self.spans(tracker, at) == [(None, None, 2)]

    def test_tracker_ignores_repeated_and_equal_definitions(self) -> None:
        known = (Place(1, 5), self.FIRST), (Place(1, 9), self.FIRST), (Place(1, 90), self.SECOND)
        assert self.spans(self.tracker(*known, *known)) == self.spans(self.tracker(*known))
        assert len(self.spans(self.tracker(*known))) == 2

    def test_decoded_schema_has_filled_columns_only_when_the_target_version_has_them(self) -> None:
        tracker = self.tracker((Place(1, 5), self.FIRST), (Place(1, 90), self.SECOND))
        history, writer_schemas = (
            tracker.history(self.TABLE),
            tracker.discovery.writer_schemas(self.TABLE, None),
        )
        extra = writer_schemas[1].schema.column("extra")
        assert extra is not None
        assert extra.fill == "7"
        assert resolve(history, writer_schemas, 0, 1).decoded_schema.column("extra") == extra
        # Events of the first version alone do not have it.
        assert resolve(history, writer_schemas, 0, 0).decoded_schema.names == ("id",)

    def test_tracker_ignores_drop_statements_of_a_snapshot(self) -> None:
        tracker = SchemaTracker(JsonFormat())
        first, again = (
            schema_change_event(binlog_key, "t", self.FIRST, ["id"], kind="CREATE")
            for binlog_key in (Place(1, 5), Place(1, 90))
        )
        gone = schema_change_event(Place(1, 90), "t", (), [], kind="DROP")
        in_words = [v.replace(b'"snapshot": "false"', b'"snapshot": "true"') for v in (gone, again)]
        tracker.add_schema_changes(RawRecord("p", 0, i, 0, None, v) for i, v in enumerate([first, *in_words]))
        assert not any(v.recreated for v in tracker.history(self.TABLE).versions)
        executed = [
            schema_change_event(Place(1, 95), "t", (), [], kind="DROP"),
            schema_change_event(Place(1, 99), "t", self.FIRST, ["id"], kind="CREATE"),
        ]
        tracker.add_schema_changes(RawRecord("p", 0, i, 0, None, v) for i, v in enumerate(executed))
        assert [v.recreated for v in tracker.history(self.TABLE).versions][-1]


class TestExchangedNames:
    """Tables that exchanged their names, according to the statements that rename tables."""

    COLUMNS = (ColumnSpec("id", "int", False),)

    def record(self, kind: str, table: str, pos: int, ddl: str, *, declared: bool = True) -> RawRecord:
        text = schema_change_event(Place(1, pos), table, self.COLUMNS, ["id"], kind=kind, ddl=ddl)
        if not declared:
            text = json.dumps(json.loads(text) | {"tableChanges": []}).encode()
        return RawRecord("p", 0, 0, 0, None, text)

    def tracker(self, *records: RawRecord) -> SchemaTracker:
        tracker = SchemaTracker(JsonFormat())
        tracker.add_schema_changes([self.record("CREATE", name, 5, "CREATE ...") for name in ("a", "b")])
        assert tracker.add_schema_changes(records) == []
        return tracker

    def taken_over(self, tracker: SchemaTracker) -> list[list[str | None]]:
        """Return by which table the name was taken over with each version, of both tables."""
        histories = [tracker.history(TableId("shop", name)) for name in ("a", "b")]
        assert all((v.unlogged is None) is (v.replaced is None) for h in histories for v in h.versions)
        return [[v.replaced.name if v.replaced else None for v in h.versions] for h in histories]

    def divided(self, *, declared: bool = False) -> list[RawRecord]:
        return [
            self.record("ALTER", "tmp", 90, "RENAME TABLE shop.a TO shop.tmp", declared=declared),
            self.record("ALTER", "a", 90, "RENAME TABLE shop.b TO shop.a"),
            self.record("ALTER", "b", 90, "RENAME TABLE `shop`.`tmp` TO `shop`.`b`"),
        ]

    def test_exchange_is_recognized_in_one_statement_for_each_table(self) -> None:
        assert self.taken_over(self.tracker(*self.divided())) == [[None, "b"], [None, "a"]]

    def test_exchange_is_recognized_in_the_whole_statement(self) -> None:
        ddl = "RENAME TABLE a TO tmp, b TO a, tmp TO b"
        records = [self.record("ALTER", name, 90, ddl) for name in ("a", "b")]
        assert self.taken_over(self.tracker(*records)) == [[None, "b"], [None, "a"]]

    def test_table_that_replaces_another_one_takes_over_its_name_only(self) -> None:
        ddl = "RENAME TABLE a TO a_old, b TO a"
        records = [self.record("ALTER", name, 90, ddl) for name in ("a_old", "a")]
        assert self.taken_over(self.tracker(*records)) == [[None, "b"], [None]]
