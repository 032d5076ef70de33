"""Check a mirror: compare its tables with the source at one position, while both are changing."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from replicator import __version__, failpoints
from replicator.config import Config, KafkaLog
from replicator.config.column_rules import ColumnRuleBook
from replicator.errors import (
    LakeUnavailable,
    ReplicatorError,
    SchemaError,
    SourceUnavailable,
    Unsettled,
    UsageError,
)
from replicator.lake.properties import PAUSED_KEY
from replicator.lake.reading.catalog import namespace_properties, tables_in
from replicator.lake.reading.reader import open_catalog
from replicator.lake.reading.source_names import mirrored_tables
from replicator.model.common import counted, now_ms
from replicator.model.table import SOURCE_KEY, TableId
from replicator.model.verified import VerifiedTable, check_records, verified_in
from replicator.schema.evolution.changes import SCHEMA_KEY, SchemaState
from replicator.sources.mysql.definitions import read_primary_key
from replicator.sources.mysql.tables import selected_tables
from replicator.sources.mysql.throttle import Throttle
from replicator.sources.source_positions import required_positions
from replicator.verify.changed_keys import AllRows, changed_keys, parse_since, since_last
from replicator.verify.chunks import KeyRange, keys_between
from replicator.verify.compared_table import ComparedTable, compared_table
from replicator.verify.interruption import Interruption, ending_statements
from replicator.verify.lake_position import LakePosition, LakeTable, lake_tables
from replicator.verify.lake_rows import no_rows
from replicator.verify.lake_side import LakeSide
from replicator.verify.later_changes import LaterChanges, later_changes, nothing_later
from replicator.verify.ordered_keys import key_of_text, key_of_texts
from replicator.verify.progress import Progress, continued, new_progress, read_progress
from replicator.verify.results import (
    Report,
    SchemaFinding,
    Severity,
    TableResult,
    Verdict,
    settled,
)
from replicator.verify.schema_comparison import compare_schema, mirror_key
from replicator.verify.source_side import Fence, SourceSide, has_rows, open_source
from replicator.verify.table_check import ALL, Limits, TableCheck

OnProgress = Callable[[str, int, int], None]
"""Called with what is done, and the number of rows that are done and in all."""
_MOST_CHECKS: Final = 4
"""How often a table is checked that is undecided for a reason that passes."""
_LAST: Final = "last"
_PROGRESS: Final = "verify-progress.jsonl"
_CHANGED: Final = (1146, 1412)
"""Errors of MySQL: the table is gone, or its definition changed after the transaction began."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is checked.

    Attributes:
        patterns: the source tables; all if it is empty.
        wait_seconds: how long to wait for the connector, and then for the mirrors.
        limits: how each table is checked.
        since: check only keys that changed since a position, a set of GTIDs, or the "last" check; None checks all.
        first, last: check only keys between these values of the first key column, both included; None is no bound.
        resume: continue the check that was interrupted.
        may_be_resumed: whether what is found is recorded on this machine, so that the check can be continued.
        keys: table → the keys that are checked, in the columns of the lake; None checks all.
        after: the key, as texts, behind which a check of one table begins; see `TableResult.upto`.
        is_recorded: whether the result is recorded as the newest check of the tables.
        poll_seconds: how often the connector and the mirrors are looked at while the check waits for them.
        interruption: ends the check early; it then raises `Interrupted`, or an error of its connections.
    """

    patterns: tuple[str, ...] = ()
    wait_seconds: float = 300.0
    limits: Limits = field(default_factory=Limits)
    since: str | None = None
    first: int | None = None
    last: int | None = None
    resume: bool = False
    may_be_resumed: bool = True
    keys: Mapping[TableId, pa.Table] | None = None
    after: tuple[str, ...] = ()
    is_recorded: bool = True
    poll_seconds: float = 0.5
    interruption: Interruption = field(default_factory=Interruption, compare=False)

    @property
    def has_bounds(self) -> bool:
        """Whether only some keys are checked."""
        return (self.first, self.last) != (None, None)


def verify(config: Config, wanted: Wanted, on_progress: OnProgress = lambda *_: None) -> Report:
    """Compare a mirror with its source, and record the result in the `_ops` namespace.

    Raises:
        UsageError: a pattern matches no mirrored table of the source, or the mirror does not use Kafka Connect.
        SourceError, LogError, LakeUnavailable: the source, the log or the lake does not answer.
    """
    _check_config(config)
    if wanted.since not in (None, _LAST):
        parse_since(wanted.since or "")
    began = now_ms()
    tables = selected_tables(mirrored_tables(config), wanted.patterns)
    if wanted.keys is not None:
        tables = [table for table in tables if table in wanted.keys]
    progress = _progress(config, wanted)
    found = {table: progress.results[str(table)] for table in tables if str(table) in progress.results}
    with open_catalog(config.lake) as catalog:
        # The mirrors of paused tables do not reach the position.
        paused = _paused(namespace_properties(catalog, config.lake.ops_namespace))
        found |= {table: paused[str(table)] for table in tables if str(table) in paused}
        check = _Check(config, wanted, catalog, progress, on_progress)
        fence = check.run(tables, found)
        for _ in range(_MOST_CHECKS - 1):
            if all(table in found and not found[table].passing for table in tables):
                break
            fence = check.run(tables, found)
        results = list(found.values())
        if not wanted.patterns:
            results += _left_over(catalog, config, tables)
        report = Report(
            mirror=config.mirror.name,
            version=__version__,
            server_version=fence.server_version,
            position=str(fence.before),
            gtids=None if fence.before.gtids is None else str(fence.before.gtids),
            began_ms=began,
            ended_ms=now_ms(),
            tables=sorted(results, key=lambda result: result.table),
            options=_options(wanted),
        )
        if wanted.is_recorded:
            record(catalog, config, report, tables)
        progress.end()
    return report


def _progress(config: Config, wanted: Wanted) -> Progress:
    """Return the progress of this check, or of the one that it continues."""
    if not wanted.may_be_resumed:
        return Progress()
    path, options = config.mirror.state_dir / _PROGRESS, _options(wanted)
    # Each check has another seed.
    options.pop("seed")
    progress = read_progress(path, options) if wanted.resume else new_progress(path)
    progress.begin(options)
    return progress


def _check_config(config: Config) -> None:
    if not isinstance(config.log, KafkaLog):
        raise UsageError(
            "a mirror of an archive cannot be compared with the source, which has later changes",
            'set log.kind = "kafka"',
        )
    required_positions(config)


def _options(wanted: Wanted) -> dict[str, str | int | float | None]:
    limits = wanted.limits
    return {
        "tables": ", ".join(wanted.patterns) or None,
        "since": wanted.since,
        "first": wanted.first,
        "last": wanted.last,
        "max_rows_per_second": limits.rows_per_second,
        "max_differences": limits.differences,
        "sample": limits.sample,
        "seed": limits.seed if limits.sample < 1 else None,
    }


@dataclass(frozen=True, slots=True)
class _Check:
    """The checks of some tables."""

    config: Config
    wanted: Wanted
    catalog: Catalog
    progress: Progress
    on_progress: OnProgress

    def run(self, tables: Sequence[TableId], results: dict[TableId, TableResult]) -> Fence:
        """Check the tables that are not decided in `results` at one position of the source, and add theirs."""
        left = [table for table in tables if table not in results or results[table].passing]
        self.on_progress("the lake is read", 0, 0)
        before = lake_tables(self.catalog, self.config, left)
        with (
            open_source(self.config, self.wanted.limits.connections) as (connections, fence),
            ending_statements(self.wanted.interruption, self.config.source, connections),
        ):
            # Without tables, nothing must reach the position.
            found, late = self._settled(fence, before) if left else ({}, {})
            properties = namespace_properties(self.catalog, self.config.lake.ops_namespace)
            checked = {check.table: check for check in verified_in(properties)}
            for table in left:
                if table not in before:
                    result = self._without_mirror(connections[0], table)
                elif table not in found:
                    result = TableResult(str(table), Verdict.UNDECIDED, late.get(table))
                else:
                    lake = before[table], found[table]
                    result = _Comparison(self, connections, fence, table, *lake, checked.get(table)).result()
                result = replace(result, position=str(fence.before))
                if not result.passing:
                    self.progress.add_result(result)
                results[table] = settled(results.get(table), result)
                failpoints.reach("after-verified-table")
        return fence

    def _settled(
        self, fence: Fence, before: Mapping[TableId, LakeTable]
    ) -> tuple[dict[TableId, LakeTable], dict[TableId, str]]:
        """Return the tables whose mirrors have reached the position, and why others have not."""
        lake = LakePosition(self.config, self.wanted.wait_seconds, self._waits, self.wanted.poll_seconds)
        return lake.settled(self.catalog, lake.ends(fence.awaited, before))

    def _waits(self, awaited: str) -> None:
        self.wanted.interruption.go_on()
        self.on_progress(f"waiting: {awaited}", 0, 0)

    def _without_mirror(self, connection: Connection, table: TableId) -> TableResult:
        options = self.config.table(str(table))
        if options.keyless == "changelog" and not (options.key or read_primary_key(connection, table)):
            note = _note("it has no key, and is configured to have no mirror")
            return TableResult(str(table), Verdict.EQUAL, schema=[note])
        if not has_rows(connection, table):
            return TableResult(str(table), Verdict.EQUAL, schema=[_note("it is empty and not in the lake")])
        return TableResult(str(table), Verdict.DIFFERENT, schema=[_wrong("the lake has no mirror of it")])


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The comparison of one table.

    Attributes:
        before, lake: its lake tables before the transaction of the source began, and at the position.
        checked: its last check.
    """

    check: _Check
    connections: Sequence[Connection]
    fence: Fence
    table: TableId
    before: LakeTable
    lake: LakeTable
    checked: VerifiedTable | None

    @property
    def wanted(self) -> Wanted:
        """What is checked."""
        return self.check.wanted

    def result(self) -> TableResult:
        """Compare the table; if that fails for a reason of its own, it is undecided."""
        try:
            return replace(self._compared(), offsets=self.before.offsets, topic_id=self.before.topic_id)
        except (SourceUnavailable, LakeUnavailable):
            raise
        except ReplicatorError as error:
            reason, passing = (
                "; ".join(filter(None, (error.message, error.hint))),
                isinstance(error, Unsettled),
            )
        except DBAPIError as error:
            if not error.orig or error.orig.args[0] not in _CHANGED:
                raise
            reason, passing = "its definition changed in the source during the check", True
        return TableResult(str(self.table), Verdict.UNDECIDED, reason, passing=passing)

    def _compared(self) -> TableResult:
        config, mirror = self.check.config, self.lake.mirror
        table = compared_table(
            self.connections[0], config, ColumnRuleBook(config), self.table, mirror_key(mirror)
        )
        schema = list(compare_schema(table, mirror))
        table = table.in_lake({field.name for field in mirror.schema().fields})
        if self.before.topic_id != self.lake.topic_id:
            raise Unsettled("its topic was recreated meanwhile", "check again")
        later, unknown = self._later(table)
        changed = self._changed(table)
        if isinstance(changed, AllRows):
            schema.append(_note(f"all rows were checked: {changed.reason}"))
            changed = None
        try:
            result = self._rows(table, later, schema, changed)
        except SchemaError as error:
            if all(finding.severity is Severity.NOTE for finding in schema):
                raise
            reason = f"its rows were not compared: {error.message}"
            return TableResult(table.name, Verdict.DIFFERENT, reason, schema=schema)
        if unknown and result.counts and result.verdict is Verdict.DIFFERENT:
            reason = f"it has no changelog, and {counted(unknown, 'event')} arrived meanwhile, which cannot be undone; "
            reason += "check again when it changes less"
            return replace(result, verdict=Verdict.UNDECIDED, reason=reason, passing=True)
        return result

    def _changed(self, table: ComparedTable) -> pa.Table | AllRows | None:
        """Return the keys that are checked, or why it is all rows; None if all are wanted."""
        if self.wanted.keys is not None:
            return self.wanted.keys[self.table]
        if self.wanted.since is None:
            return None
        is_last = self.wanted.since == _LAST
        since = since_last(self.checked, self.before.topic_id) if is_last else parse_since(self.wanted.since)
        return since if isinstance(since, AllRows) else changed_keys(table, self.lake.changelog, since)

    def _rows(
        self,
        table: ComparedTable,
        later: LaterChanges,
        schema: Sequence[SchemaFinding],
        changed: pa.Table | None,
    ) -> TableResult:
        """Compare the rows of a table, or those with the keys `changed`."""
        within, progress, on_progress = self._within(table), self.check.progress, self.check.on_progress
        parts = progress.parts_of(table.name, table.source.fingerprint) if changed is None else []
        if parts and (last := parts[-1].last) is not None:
            within = KeyRange(tuple(map(key_of_text, last)), within.upto)
        done = sum(chunk.source_rows for part in parts for chunk in part.chunks)
        result = TableCheck(
            table,
            SourceSide.of(self.connections, table),
            LakeSide(table, self.lake.mirror, self.wanted.interruption.go_on),
            later,
            self.wanted.limits,
            schema,
            within,
            changed,
            lambda rows, total: on_progress(table.name, done + rows, max(total, done + rows)),
            lambda part: progress.add_part(table.name, part),
            self._throttle(table),
        ).run()
        if changed is not None:
            is_part = self.wanted.since != _LAST or self.wanted.has_bounds
            return replace(result, since=self.wanted.since, is_sampled=is_part)
        return continued(parts, replace(result, is_sampled=result.is_sampled or self.wanted.has_bounds))

    def _throttle(self, table: ComparedTable) -> Callable[[int], object]:
        """Return what waits while too many rows are read, or a replica is too far behind."""

        def report_wait(reason: str | None) -> None:
            self.check.on_progress(table.name if reason is None else f"waiting: {reason}", 0, 0)

        throttle = Throttle.of(
            self.check.config, self.table, report_wait, rows_per_second=self.wanted.limits.rows_per_second
        )
        return partial(self.wanted.interruption.wait, throttle)

    def _within(self, table: ComparedTable) -> KeyRange:
        if (after := key_of_texts(self.wanted.after, table.ranges)) is not None:
            return KeyRange(after, None)
        if not self.wanted.has_bounds:
            return ALL
        if not table.ranges or table.ranges[0].width is not None:
            raise UsageError(
                f"the key of {table.name} does not begin with an integer", "choose tables with --table"
            )
        return keys_between(table, self.wanted.first, self.wanted.last)

    def _later(self, table: ComparedTable) -> tuple[LaterChanges, int]:
        """Return the changes to undo, and the number of events that cannot be undone."""
        since, until = self.before.offsets, self.lake.offsets
        if self.lake.changelog is not None:
            return later_changes(table, self.lake.changelog, self.fence, since, until), 0
        events = sum(end - since.get(partition, 0) for partition, end in until.items())
        return nothing_later(table, no_rows(self.lake.mirror, table.columns)), events


def _paused(properties: Mapping[str, str]) -> dict[str, TableResult]:
    """Return a result for each paused table, by its name; `properties` are those of the `_ops` namespace."""
    found = {}
    for key, value in properties.items():
        with suppress(ValueError, AttributeError):
            if key.startswith(PAUSED_KEY):
                record, name = json.loads(value), key.removeprefix(PAUSED_KEY)
                parts = ("it is paused", record.get("reason"), record.get("hint"))
                found[name] = TableResult(name, Verdict.UNDECIDED, "; ".join(filter(None, parts)))
    return found


def _left_over(catalog: Catalog, config: Config, tables: Iterable[TableId]) -> list[TableResult]:
    """Return a result for each mirror of a table that the source does not have."""
    known = {str(table) for table in tables}
    found = []
    for mirror in tables_in(catalog, config.lake.namespace).values():
        source = mirror.properties.get(SOURCE_KEY)
        if source is None or source in known or not config.includes(source):
            continue
        state = mirror.properties.get(SCHEMA_KEY)
        gone = None if state is None else SchemaState.from_json(state).gone
        if gone is None:
            found.append(
                TableResult(source, Verdict.DIFFERENT, schema=[_wrong("the source has no such table")])
            )
    return found


def _note(text: str) -> SchemaFinding:
    return SchemaFinding(Severity.NOTE, text)


def _wrong(text: str) -> SchemaFinding:
    return SchemaFinding(Severity.DIFFERENT, text)


def record(catalog: Catalog, config: Config, report: Report, tables: Sequence[TableId]) -> None:
    """Record the newest check of each table, and keep those before."""
    namespace = config.lake.ops_namespace
    by_name = {str(table): table for table in tables}
    records = [
        VerifiedTable(
            by_name[result.table],
            str(result.verdict),
            result.position or report.position,
            report.ended_ms,
            result.source_rows,
            result.differing,
            result.is_sampled,
            result.reason,
            result.offsets,
            result.topic_id,
        )
        for result in report.tables
        if result.table in by_name
    ]
    if records:
        catalog.create_namespace_if_not_exists(namespace)
        updates = check_records(namespace_properties(catalog, namespace), records)
        catalog.update_namespace_properties(namespace, updates=updates)
