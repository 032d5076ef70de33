"""Stores the schema history of each source table, from definitions and from events.

Definitions are read from the schema-change topic or from the source itself. Schemas without a definition that events
show are added as observed versions.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import merge
from typing import Final

from replicator.decode.schemas.resolution import matching_versions
from replicator.model.common import quoted
from replicator.model.position import SourcePosition
from replicator.model.table import TableId, TableSchema, topic_name
from replicator.schema.ddl.effects import ColumnMoves
from replicator.schema.ddl.partitions import FORGET
from replicator.schema.ddl.records import is_copy_of
from replicator.schema.history.builder import DefinitionClock, build_history, with_observed
from replicator.schema.history.keys import primary_key
from replicator.schema.history.order import VersionStart, binlog_key
from replicator.schema.history.versions import BEGINNING, SchemaHistory, SchemaVersion, TableDefinition

_MISREAD: Final = "\ufffd"
"""What the connector reads for bytes that are not UTF-8."""
_BEGINNING: Final = SourcePosition("binlog.000000", 0)


class SchemaHistories:
    """Stores definitions and observed versions, and builds the schema history of each table from them.

    Safe for several threads.

    Attributes:
        revision: a number that changes with each definition.
    """

    def __init__(self, *, reads_again: bool = False) -> None:
        """For `reads_again`, see `HistoryBuilder`."""
        self.revision = 0
        self._reads_again = reads_again
        self._declared: dict[TableId, list[TableDefinition]] = {}
        self._observed: dict[TableId, list[TableDefinition]] = {}
        self._followed: dict[TableId, tuple[int, int]] = {}
        self._only_statements: dict[TableId, list[TableDefinition]] = {}
        self._spellings: dict[tuple[str, str], set[TableId]] = defaultdict(set)
        self._histories: dict[TableId, SchemaHistory] = {}
        self._tables_by_topic: dict[str, set[TableId]] = {}
        self._intermediate_names: dict[tuple[int, TableId], TableId] = {}
        self._clock = DefinitionClock()
        self._lock = threading.Lock()

    def apply(self, definitions: Iterable[TableDefinition]) -> None:
        """Add the definitions of one schema change. A redelivered definition changes nothing."""
        with self._lock:
            for definition in definitions:
                placed = self._clock.place(definition)
                if _MISREAD in placed.table.name:
                    # There is no such table: the connector reads statements as UTF-8, whatever a session writes.
                    continue
                if placed.passing:
                    self._add_intermediate_name(placed)
                elif placed.only_statement:
                    self._add_statement(placed)
                elif placed.whole_database:
                    self._add_dropped_database(placed)
                else:
                    self._add(self._with_final_names(placed))

    def define(self, table: TableId, schema: TableSchema) -> None:
        """Add the source's present definition of a table, if the schema-change topic has none.

        The key of `schema` is the table's primary key.
        """
        with self._lock:
            keys = primary_key(c.source_name.name for c in schema.key_columns)
            self._declared.setdefault(table, [TableDefinition(table, _BEGINNING, 0, schema, key_change=keys)])
            self._histories.pop(table, None)

    def follow(self, table: TableId, at: int, until_ms: int) -> None:
        """Note the `at` of the version that the lake had when the process began; later calls change nothing.

        Events of an earlier process showed it if there are no definitions. `until_ms` is the latest source time of a
        change that the lake has: another server may have lower positions, so the time tells which events are new.
        """
        with self._lock:
            self._followed.setdefault(table, (at, until_ms))

    def observe(self, table: TableId, position: SourcePosition, ts_ms: int, schema: TableSchema) -> None:
        """Add an observed version, which begins at the first event that has it."""
        with self._lock:
            self._observed.setdefault(table, []).append(TableDefinition(table, position, ts_ms, schema))
            self._histories.clear()

    def history(self, table: TableId) -> SchemaHistory:
        """Return all declared and observed versions of a table; empty if there are none."""
        with self._lock:
            return self._history(table)

    def is_defined(self, table: TableId) -> bool:
        """Return whether any definition of the table was added, including its removal."""
        return table in self._declared

    def earlier_names(self, table: TableId) -> frozenset[TableId]:
        """Return the names from which this table was renamed, and those of tables that replaced it."""
        versions = self.history(table).versions
        names = [name for v in versions for name in (v.renamed_from, v.replaced)]
        return frozenset(name for name in names if name is not None)

    def later_names(self, table: TableId) -> frozenset[TableId]:
        """Return the names to which tables of this name were renamed."""
        history = self.history(table)
        names = [v.renamed_to for v in history.versions_of_current_name] + (
            [] if history.gone is None else [history.gone.renamed_to]
        )
        return frozenset(name for name in names if name is not None)

    def tables_called(self, topic: str) -> set[TableId]:
        """Return the tables that are defined, and not dropped, whose data topic has this name without the prefix."""
        with self._lock:
            called = self._tables_by_topic.get(topic, ())
            return {t for t in called if self._declared[t] and self._declared[t][-1].schema is not None}

    def spelling_of(self, table: TableId) -> TableId:
        """Return the defined table with this name, in another letter case if there is none in this one."""
        with self._lock:
            spelt = self._spellings.get(_folded(table), set())
            present = {t: known[-1] for t in spelt if (known := self._declared.get(t)) and known[-1].schema}
        return max(present, key=lambda t: (t == table, present[t].at), default=table)

    def defined_columns(self) -> dict[TableId, set[str]]:
        """Return, for each table that is or was defined, all names that its columns had in the source."""
        with self._lock:
            schemas = {
                table: [d.schema for d in known if d.schema] for table, known in self._declared.items()
            }
        return {
            table: {column.written for schema in found for column in schema.columns}
            for table, found in schemas.items()
            if found
        }

    def _add_intermediate_name(self, definition: TableDefinition) -> None:
        """Store a name that a table has only inside a statement that renames several tables.

        Debezium 3.6 divides such a statement into one record for each table.
        """
        if definition.other_name is not None:
            self._intermediate_names[definition.at, definition.other_name] = self._intermediate_names.get(
                (definition.at, definition.table), definition.table
            )

    def _with_final_names(self, definition: TableDefinition) -> TableDefinition:
        """Replace an intermediate name in `definition` by the name that the table had before the statement."""
        at, other = definition.at, definition.other_name
        if definition.schema is None:
            table = self._intermediate_names.get((at, definition.table), definition.table)
            return replace(definition, table=table)
        if other is None:
            return definition
        return replace(definition, other_name=self._intermediate_names.get((at, other), other))

    def _add(self, definition: TableDefinition) -> None:
        self.revision += 1
        self._tables_by_topic.setdefault(topic_name(definition.table), set()).add(definition.table)
        self._spellings[_folded(definition.table)].add(definition.table)
        known = self._declared.setdefault(definition.table, [])
        if not known or known[-1].at <= definition.at:
            replaces = any(d.schema is not None for d in known)
            known.append(self._with_keys(self._with_moves(definition) if replaces else definition))
            # The histories of tables that were renamed since contain this table's history.
            self._histories.clear()

    def _add_statement(self, definition: TableDefinition) -> None:
        """Store a statement that is not a definition of its table."""
        self.revision += 1
        self._spellings[_folded(definition.table)].add(definition.table)
        known = self._only_statements.setdefault(definition.table, [])
        if not known or known[-1].at < definition.at:
            known.append(definition)
            self._histories.clear()

    def _add_dropped_database(self, definition: TableDefinition) -> None:
        """Store the removal of each table that a database had when it was dropped.

        If no table has exactly that database, the source may ignore letter case, as in `_statements`.
        """
        dropped = definition.table.database
        present = [t for t, known in self._declared.items() if known and known[-1].schema is not None]
        for table in [t for t in present if t.database == dropped]:
            self._add(replace(definition, table=table, whole_database=False))
        is_exact = any(table.database == dropped for table, known in self._declared.items() if known)
        text = f"DROP DATABASE {quoted(dropped)}"
        for table in present if not is_exact else ():
            if table.database.casefold() == dropped.casefold():
                self._add_statement(
                    replace(definition, table=table, whole_database=False, only_statement=True, unlogged=text)
                )

    def _with_keys(self, definition: TableDefinition) -> TableDefinition:
        """Add the keys and generated columns of the table like which a table was created."""
        like = definition.key_change.like
        if like is None:
            return definition
        history = self._history(like)
        return replace(definition, keys=history.keys, generated=_generated(history))

    def _with_moves(self, definition: TableDefinition) -> TableDefinition:
        """Add the changes that a table had under its own name before it replaced another table.

        Tools that alter a table by copying it replace tables in this way.
        """
        old = definition.other_name
        if definition.schema is None or old is None or not (history := self._history(old)):
            return definition
        first_version = _first_of_present_table(history, definition)
        carried = history.carry(first_version, len(history.versions) - 1)
        copied = history.versions[first_version:]
        dropped = [name for name in copied[0].schema.names if name not in carried]
        renamed = [(was, now) for was, now in carried.items() if was != now]
        is_copy = is_copy_of(old, definition.table)
        unlogged = next((v.unlogged for v in copied if v.unlogged), None) if is_copy else None
        return replace(
            definition,
            schema=_with_computed(definition.schema, copied),
            keys=history.keys,
            moves=ColumnMoves(tuple(renamed), tuple(dropped)),
            generated=_generated(history),
            unlogged=definition.unlogged or unlogged,
            other_name=self._name_before(old, copied, definition) or old,
        )

    def _name_before(
        self, other: TableId, versions: Sequence[SchemaVersion], new: TableDefinition
    ) -> TableId | None:
        """Return the name before `other` of a table that gets the name of `new`, if that one counts; else None.

        It counts if the table gets it back, or if `other` is an intermediate name within one statement. `versions` are
        those that the table has had as `other`.
        """
        begin = versions[0]
        first = begin.renamed_from or begin.replaced
        if first is None or begin.recreated or len(versions) > 1:
            return None
        is_intermediate = begin.at == new.at
        if first == new.table:
            return None if is_intermediate or not self._was_renamed(first, other) else first
        return first if is_intermediate else None

    def _was_renamed(self, table: TableId, new: TableId) -> bool:
        """Return whether no table has had this name since one was renamed from it to `new`."""
        removal = self._history(table).gone
        return removal is not None and removal.renamed_to == new

    def _history(self, table: TableId) -> SchemaHistory:
        if table not in self._histories:
            self._histories[table] = self._history_until(table, None)
        return self._histories[table]

    def _history_until(self, table: TableId, end: TableDefinition | None) -> SchemaHistory:
        """Build the history before a definition. It continues the history that the table had under an earlier name."""
        declared, only_statements = (
            [d for d in known if end is None or d.at < end.at]
            for known in (self._declared.get(table, ()), self._statements(table))
        )
        observations = [d for d in self._observed.get(table, ()) if end is None or not _is_past(d, end.start)]
        first = next((d for d in declared if d.schema is not None), None)
        past = None
        if first is not None and first.other_name is not None:
            past = self._history_until(first.other_name, first)
        definitions = [*merge(declared, only_statements, key=lambda d: d.at)]
        history = build_history(definitions, past, reads_again=self._reads_again)
        for d in observations:
            # The definition of an observed version may have been added since.
            if d.schema is not None and (not history or _is_past(d, history.versions[-1].start)):
                is_declared = history and matching_versions(history, d.schema)[-1:] == [
                    len(history.versions) - 1
                ]
                if not is_declared:
                    followed_at = self._followed_at(table, d.ts_ms)
                    history = with_observed(history, d.position, d.ts_ms, d.schema, followed_at)
        return history

    def _followed_at(self, table: TableId, ts_ms: int) -> int:
        """Return the `at` of the version after which a version begins that events showed at a source time."""
        at, until_ms = self._followed.get(table, (BEGINNING, 0))
        return at if ts_ms > until_ms else BEGINNING

    def _statements(self, table: TableId) -> list[TableDefinition]:
        """Return the statements about a table that do not define it, in their order.

        The source may ignore letter case (`lower_case_table_names`), which the log does not tell. So a statement about
        a name that no table has counts for tables whose names differ from it in letter case only.
        """
        found = [*self._only_statements.get(table, ())]
        for name in self._spellings.get(_folded(table), set()) - {table}:
            found += (
                _of_other_case(d, table) for d in self._named_statements(name) if not self._has(name, d.at)
            )
        return sorted(found, key=lambda d: d.at)

    def _named_statements(self, name: TableId) -> Iterator[TableDefinition]:
        """Yield the statements in which a table has this name, without those that define it."""
        yield from self._only_statements.get(name, ())
        yield from (d for d in self._declared.get(name, ()) if d.schema is None and not d.snapshot)

    def _has(self, table: TableId, at: int) -> bool:
        """Return whether a table of exactly this name was defined before `at`."""
        return any(d.schema is not None and d.at < at for d in self._declared.get(table, ()))


def _folded(table: TableId) -> tuple[str, str]:
    return table.database.casefold(), table.name.casefold()


def _first_of_present_table(history: SchemaHistory, new: TableDefinition) -> int:
    """Return the index of the first version of the table that has the name now: tools use a name again.

    Another table begins where one was created, or took over the name, except in the same exchange of names as `new`.
    """
    exchange = new.at, new.table
    begins = (
        i
        for i, v in enumerate(history.versions)
        if i >= history.own and (v.recreated or (v.replaced is not None and (v.at, v.replaced) != exchange))
    )
    return max(begins, default=history.own)


def _generated(history: SchemaHistory) -> dict[str, bool]:
    """Return `TableDefinition.generated` of a table that has the last definition of another one."""
    if not history:
        return {}
    last = history.versions[-1]
    return {c.source_name.name.casefold(): c.name in last.generated for c in last.schema.columns}


def _with_computed(schema: TableSchema, versions: Sequence[SchemaVersion]) -> TableSchema:
    """Return the schema that a table has after `versions`, with the columns that any of them computes.

    The statement that renames the table does not show which columns have an expression.
    """
    computed: set[str] = set()
    for version in versions:
        computed = {version.carried[name] for name in computed if name in version.carried}
        computed |= {c.name for c in version.schema.columns if c.fill_unknown}
    columns = (replace(c, fill=None, fill_unknown=True) if c.name in computed else c for c in schema.columns)
    return replace(schema, columns=tuple(columns))


def _of_other_case(statement: TableDefinition, table: TableId) -> TableDefinition:
    """Return a statement that may be about `table`: such that the table is at worst read again needlessly."""
    if statement.only_statement:
        partitions = None if statement.partitions is None else FORGET
        return replace(statement, table=table, partitions=partitions)
    name, new = quoted(statement.table.name), statement.other_name
    text = f"DROP TABLE {name}" if new is None else f"RENAME TABLE {name} TO {quoted(new.name)}"
    return replace(statement, table=table, other_name=None, only_statement=True, unlogged=text)


def _is_past(observed: TableDefinition, start: VersionStart) -> bool:
    """Return whether a version was observed after the beginning of another one."""
    later = start.is_before(observed.position, observed.ts_ms)
    return later and binlog_key(observed.position) != start.key
