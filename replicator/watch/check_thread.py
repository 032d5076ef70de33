"""What a running mirror does in a thread of its own to compare its tables with the source."""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.utils.concurrent import ExecutorFactory

from replicator.config import DEFAULT_VERIFY, Config
from replicator.lake.reading.catalog import namespace_properties
from replicator.lake.reading.reader import open_catalog
from replicator.lake.reading.source_names import mirrored_tables
from replicator.model.common import matches, now_ms
from replicator.model.table import TableId
from replicator.model.verified import VerifiedTable, verified_in
from replicator.sources.mysql.connection import connect, server_version
from replicator.sources.mysql.tables import read_cascades
from replicator.verify.interruption import Interruption
from replicator.verify.mirror_check import Wanted, record, verify
from replicator.verify.recent_rows import RecentRows
from replicator.verify.results import Report, TableResult, Verdict
from replicator.verify.table_check import Limits
from replicator.watch.differences import Differences

_WAIT_S: Final = 300.0
"""How long a check waits for the connector, and then for the mirror."""
_WAIT_POLL_S: Final = 2.0
_PART_S: Final = 120.0
"""A table is compared in parts for which the source is read so long: their transactions keep old versions of rows."""
_SHARE: Final = 0.015
"""Share of a core that checks take, as far as `_cpu_seconds` sees it."""
_RECORD_S: Final = 60.0
"""How often it is recorded which tables were compared."""
_USER_TIME: Final = 11
"""Place of the user time in `/proc/self/task/ID/stat`, behind the name; the system time follows."""
_SERVER_CASCADES: Final = (9, 6)
"""Since this version, the server itself carries out the actions of foreign keys, and logs them."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What was found.

    Attributes:
        results: the tables that were compared as a whole, or of which rows were suspected.
        is_look: whether rows that changed recently were compared, rather than a table as a whole.
        has_open: whether some of them must be looked at again soon.
        causes: table → what may have made it differ.
        rest: seconds in which nothing is compared, so that the load stays low.
    """

    results: Sequence[tuple[TableId, TableResult]]
    is_look: bool = False
    has_open: bool = False
    causes: Mapping[TableId, str] = field(default_factory=dict)
    rest: float = 0.0


class CheckThread:
    """Compares tables. Its methods are for one thread."""

    def __init__(self, config: Config, differences: Differences) -> None:
        self._config = config
        self._differences = differences
        self._tried: dict[TableId, int] = {}
        self._rows = RecentRows(config)
        self._recorded = 0.0

    def look(self, tables: Collection[TableId], rows: int, interruption: Interruption) -> Ended:
        """Compare `rows` rows of tables that got changes.

        Raises:
            ReplicatorError: the source or the lake does not answer.
        """
        began = _cpu_seconds()
        with open_catalog(self._config.lake) as catalog:
            look = self._rows.look(catalog, tables, rows, interruption)
            self._differences.note_rows(look.compared)
            self._record(catalog)
        results = self._check_keys(look.suspected, interruption) if look.suspected else []
        causes = self._causes(results)
        rest = (_cpu_seconds() - began) / _SHARE
        return Ended(results, is_look=True, has_open=look.has_open, causes=causes, rest=rest)

    def check_next(self, paused: Collection[TableId], interruption: Interruption) -> Ended | None:
        """Compare the table that is due, or its next part; return None if none is due.

        Raises:
            ReplicatorError: the source or the lake does not answer.
        """
        began, cpu = time.monotonic(), _cpu_seconds()
        if (table := self._next(paused)) is None:
            return None
        # If it fails, others come first.
        self._tried[table] = now_ms()
        result = self._check(table, interruption)
        causes = self._causes([(table, result)])
        rest, limits = 0.0, self._config.verify
        if limits == DEFAULT_VERIFY:
            late = result.source_rows / limits.max_rows_per_second - (time.monotonic() - began)
            rest = max(late, (_cpu_seconds() - cpu) / _SHARE)
        return Ended([(table, result)], causes=causes, rest=rest)

    def record(self) -> Ended:
        """Record what was found.

        Raises:
            LakeUnavailable: the lake does not answer.
        """
        with open_catalog(self._config.lake) as catalog:
            self._record(catalog, is_due=True)
        return Ended([])

    def _verify(self, tables: Collection[TableId], interruption: Interruption, **options: Any) -> Report:
        wanted = Wanted(
            tuple(map(str, tables)),
            _WAIT_S,
            may_be_resumed=False,
            is_recorded=False,
            poll_seconds=_WAIT_POLL_S,
            interruption=interruption,
            **options,
        )
        return verify(self._config, wanted, lambda *_: interruption.go_on())

    def _check_keys(
        self, keys: Mapping[TableId, pa.Table], interruption: Interruption
    ) -> list[tuple[TableId, TableResult]]:
        """Compare suspected rows at one position."""
        report = self._verify(keys, interruption, keys=keys)
        by_name = {str(table): table for table in keys}
        found = [(by_name[result.table], result) for result in report.tables if result.table in by_name]
        for table, result in found:
            if result.verdict is Verdict.EQUAL:
                self._rows.clear(table, keys[table])
            elif result.verdict is Verdict.DIFFERENT:
                self._rows.forget(table)
        return found

    def _next(self, paused: Collection[TableId]) -> TableId | None:
        config = self._config
        with open_catalog(config.lake) as catalog:
            properties = namespace_properties(catalog, config.lake.ops_namespace)
            self._differences.load(properties)
        tables = [
            table
            for table in mirrored_tables(config)
            if table not in paused and not matches(str(table), config.verify.exclude)
        ]
        known = {check.table: check for check in verified_in(properties)}
        before_ms = now_ms() - int(1000 * (config.verify.every or 0))
        return due(tables, known, self._differences.corrected, before_ms, self._tried)

    def _check(self, table: TableId, interruption: Interruption) -> TableResult:
        """Compare a table, or the part of it at which the last check ended."""
        rate, before = self._config.verify.max_rows_per_second, self._differences.of(table)
        limits = Limits(rows_per_second=rate, rows=int(rate * _PART_S))
        report = self._verify([table], interruption, limits=limits, after=before.upto)
        # The name may be a pattern that matches others too.
        result = next(result for result in report.tables if result.table == str(table))
        self._note(table, report, result)
        return result

    def _note(self, table: TableId, report: Report, result: TableResult) -> None:
        """Record a check of a whole table, or up to where it is compared."""
        before = self._differences.of(table)
        with open_catalog(self._config.lake) as catalog:
            if result.verdict is Verdict.EQUAL and result.upto:
                self._differences.note_part(table, result.upto, before.rows + result.source_rows)
            else:
                whole = result
                if before.upto:
                    # The offset at which its first part began is not known any more.
                    whole = replace(result, source_rows=before.rows + result.source_rows, offsets={})
                record(catalog, self._config, replace(report, tables=[whole]), [table])
                if result.verdict is Verdict.EQUAL:
                    self._differences.note_part(table, (), 0)
            self._record(catalog, is_due=bool(result.upto or before.upto))

    def _causes(self, results: Sequence[tuple[TableId, TableResult]]) -> dict[TableId, str]:
        """Return what may have made tables differ, as far as the source tells."""
        different = {table for table, result in results if result.verdict is Verdict.DIFFERENT}
        if not different:
            return {}
        with connect(self._config.source) as connection:
            if server_version(connection) >= _SERVER_CASCADES:
                return {}
            children = {cascade.child for cascade in read_cascades(connection)}
        return dict.fromkeys(different & children, "a foreign key may have changed rows without events")

    def _record(self, catalog: Catalog, *, is_due: bool = False) -> None:
        """Record from time to time which tables were compared."""
        if not is_due and time.monotonic() < self._recorded + _RECORD_S:
            return
        self._recorded = time.monotonic()
        namespace = self._config.lake.ops_namespace
        self._differences.load(namespace_properties(catalog, namespace))
        if updates := self._differences.take_changed():
            catalog.update_namespace_properties(namespace, updates=updates)


def _cpu_seconds() -> float:
    """Return the CPU time of this thread, and of the threads in which PyIceberg reads for it, if the system tells."""
    found = time.thread_time()
    for thread in getattr(ExecutorFactory.get_or_create(), "_threads", ()):
        with suppress(OSError):
            fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
            found += (int(fields[_USER_TIME]) + int(fields[_USER_TIME + 1])) / os.sysconf("SC_CLK_TCK")
    return found


def due(
    tables: Sequence[TableId],
    checked: Mapping[TableId, VerifiedTable],
    repaired: Collection[TableId],
    before_ms: int,
    tried: Mapping[TableId, int] | None = None,
) -> TableId | None:
    """Return the table to check next: one that was repaired, or else the one whose last check is oldest.

    Return None if all were checked after `before_ms`, milliseconds since the epoch. `tried` is when this process began
    to check a table, whether or not that succeeded.
    """
    ended = {table: checked[table].ended_ms if table in checked else 0 for table in tables}
    waiting = [table for table in tables if table in repaired or ended[table] <= before_ms]
    begun = tried or {}
    return min(waiting, key=lambda t: (t not in repaired, max(ended[t], begun.get(t, 0)), t), default=None)
