"""Check a mirror: compare its tables with the source at one position, while both are changing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.catalog import Catalog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from replicator import __version__
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
from replicator.lake.reader import open_catalog, tables_in
from replicator.model.clock import now_ms
from replicator.model.patterns import matches
from replicator.model.table import SOURCE_KEY, TableId
from replicator.model.verified import VERIFIED_KEY, VerifiedTable
from replicator.operations.verify.compared_table import ComparedTable, compared_table
from replicator.operations.verify.lake_position import LakePosition, LakeTable, lake_tables
from replicator.operations.verify.lake_rows import no_rows
from replicator.operations.verify.lake_side import LakeSide
from replicator.operations.verify.later_changes import LaterChanges, Offsets, later_changes, nothing_later
from replicator.operations.verify.results import (
    Report,
    SchemaFinding,
    Severity,
    TableResult,
    Verdict,
    settled,
)
from replicator.operations.verify.schema_comparison import compare_schema
from replicator.operations.verify.source_side import Fence, SourceSide, has_rows, open_source
from replicator.operations.verify.table_check import Limits, TableCheck
from replicator.schema.changes import SCHEMA_KEY, SchemaState
from replicator.sources.mysql.tables import included_tables

OnProgress = Callable[[str, int, int], None]
"""Called with what is done, and the number of rows that are done and in all."""
_MOST_CHECKS: Final = 4
"""How often a table is checked that is undecided for a reason that passes."""
_CHANGED: Final = (1146, 1412)
"""Errors of MySQL: the table is gone, or its definition changed after the transaction began."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is checked.

    Attributes:
        patterns: the source tables; all if it is empty.
        wait_seconds: how long to wait for the connector, and then for the mirrors.
        limits: how each table is checked.
    """

    patterns: tuple[str, ...] = ()
    wait_seconds: float = 300.0
    limits: Limits = field(default_factory=Limits)


def verify(config: Config, wanted: Wanted, on_progress: OnProgress = lambda *_: None) -> Report:
    """Compare a mirror with its source, and record the result in the `_ops` namespace.

    Raises:
        UsageError: a pattern matches no mirrored table of the source, or the mirror does not use Kafka Connect.
        SourceError, LogError, LakeUnavailable: the source, the log or the lake does not answer.
    """
    _check_config(config)
    began = now_ms()
    tables = _chosen(included_tables(config), wanted.patterns)
    with open_catalog(config.lake) as catalog:
        fence, found = _check(config, wanted, catalog, tables, on_progress)
        for _ in range(_MOST_CHECKS - 1):
            left = [table for table in tables if found[table].passing]
            if not left:
                break
            _, again = _check(config, wanted, catalog, left, on_progress)
            found |= {table: settled(found[table], result) for table, result in again.items()}
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
        _record(catalog, config, report, tables)
    return report


def _check_config(config: Config) -> None:
    if not isinstance(config.log, KafkaLog):
        raise UsageError(
            "a mirror of an archive cannot be compared with the source, which has later changes",
            'set log.kind = "kafka"',
        )
    if config.log.connect_url is None:
        raise UsageError(
            "only Kafka Connect knows up to where the connector has read, and log.connect_url is not set",
            'add connect_url = "http://…" to [log]',
        )


def _check(
    config: Config, wanted: Wanted, catalog: Catalog, tables: Sequence[TableId], on_progress: OnProgress
) -> tuple[Fence, dict[TableId, TableResult]]:
    """Check tables at one position of the source."""
    on_progress("the lake is read", 0, 0)
    before = lake_tables(catalog, config, tables)
    with open_source(config, wanted.limits.connections) as (connections, fence):
        found = _Check(config, wanted, catalog, connections, fence, on_progress).run(tables, before)
    return fence, {table: replace(result, position=str(fence.before)) for table, result in found.items()}


def _chosen(tables: Sequence[TableId], patterns: Sequence[str]) -> list[TableId]:
    for pattern in patterns:
        if not any(matches(str(table), (pattern,)) for table in tables):
            raise UsageError(
                f'"{pattern}" matches no table of the source that is mirrored',
                "check source.tables and the name",
            )
    return [table for table in tables if not patterns or matches(str(table), tuple(patterns))]


def _options(wanted: Wanted) -> dict[str, str | int | float | None]:
    limits = wanted.limits
    return {
        "tables": ", ".join(wanted.patterns) or None,
        "max_rows_per_second": limits.rows_per_second,
        "max_differences": limits.differences,
        "sample": limits.sample,
        "seed": limits.seed if limits.sample < 1 else None,
    }


@dataclass(frozen=True, slots=True)
class _Check:
    """The check of some tables at one position."""

    config: Config
    wanted: Wanted
    catalog: Catalog
    connections: Sequence[Connection]
    fence: Fence
    on_progress: OnProgress

    def run(
        self, tables: Iterable[TableId], before: Mapping[TableId, LakeTable]
    ) -> dict[TableId, TableResult]:
        lake = LakePosition(
            self.config,
            self.wanted.wait_seconds,
            lambda awaited: self.on_progress(f"waiting: {awaited}", 0, 0),
        )
        ends = lake.ends(self.fence.awaited, before)
        found, late = lake.settled(self.catalog, ends)
        rules = ColumnRuleBook(self.config)
        results = {}
        for table in tables:
            if table not in before:
                results[table] = self._without_mirror(table)
            elif table not in found:
                results[table] = TableResult(str(table), Verdict.UNDECIDED, late.get(table))
            else:
                results[table] = self._guarded(table, rules, before[table], found[table])
        return results

    def _without_mirror(self, table: TableId) -> TableResult:
        if not has_rows(self.connections[0], table):
            return TableResult(str(table), Verdict.EQUAL, schema=[_note("it is empty and not in the lake")])
        return TableResult(str(table), Verdict.DIFFERENT, schema=[_wrong("the lake has no mirror of it")])

    def _guarded(
        self, table: TableId, rules: ColumnRuleBook, before: LakeTable, lake: LakeTable
    ) -> TableResult:
        """Check a table; if that fails for a reason of its own, it is undecided."""
        try:
            return self._table(table, rules, before, lake)
        except (SourceUnavailable, LakeUnavailable):
            raise
        except ReplicatorError as error:
            reason = "; ".join(filter(None, (error.message, error.hint)))
            return TableResult(str(table), Verdict.UNDECIDED, reason, passing=isinstance(error, Unsettled))
        except DBAPIError as error:
            if not error.orig or error.orig.args[0] not in _CHANGED:
                raise
            reason = "its definition changed in the source during the check"
            return TableResult(str(table), Verdict.UNDECIDED, reason, passing=True)

    def _table(
        self, table: TableId, rules: ColumnRuleBook, before: LakeTable, lake: LakeTable
    ) -> TableResult:
        compared = compared_table(self.connections[0], self.config, rules, table)
        schema = list(compare_schema(compared, lake.mirror))
        compared = compared.in_lake({field.name for field in lake.mirror.schema().fields})
        if before.marker.topic_ids.get(before.topic) != lake.marker.topic_ids.get(lake.topic):
            raise Unsettled("its topic was recreated meanwhile", "check again")
        later, unknown = self._later(compared, before.offsets, lake)
        try:
            result = TableCheck(
                compared,
                SourceSide.of(self.connections, compared),
                LakeSide(compared, lake.mirror),
                later,
                self.wanted.limits,
                schema,
                lambda done, total: self.on_progress(str(table), done, total),
            ).run()
        except SchemaError as error:
            if all(finding.severity is Severity.NOTE for finding in schema):
                raise
            return TableResult(
                str(table), Verdict.DIFFERENT, f"its rows were not compared: {error.message}", schema=schema
            )
        if unknown and result.counts and result.verdict is Verdict.DIFFERENT:
            return replace(
                result,
                verdict=Verdict.UNDECIDED,
                reason=f"it has no changelog, and {unknown} events arrived meanwhile, which cannot be undone; "
                "check again when it changes less",
                passing=True,
            )
        return result

    def _later(self, table: ComparedTable, since: Offsets, lake: LakeTable) -> tuple[LaterChanges, int]:
        """Return the changes to undo, and the number of events that cannot be undone."""
        if lake.changelog is not None:
            return later_changes(table, lake.changelog, self.fence, since, lake.offsets), 0
        events = sum(end - since.get(partition, 0) for partition, end in lake.offsets.items())
        return nothing_later(table, no_rows(lake.mirror, table.columns)), events


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


def _record(catalog: Catalog, config: Config, report: Report, tables: Sequence[TableId]) -> None:
    """Record the newest check of each table."""
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
        )
        for result in report.tables
        if result.table in by_name
    ]
    updates = {VERIFIED_KEY + str(record.table): record.to_json() for record in records}
    if updates:
        catalog.create_namespace_if_not_exists(namespace)
        catalog.update_namespace_properties(namespace, updates=updates)
