"""Repair what a check found: read the tables that differ again from the source, and check them once more."""

from dataclasses import replace

from replicator.config import Config
from replicator.errors import CheckFailed
from replicator.lake.reading.source_names import mirrored_tables
from replicator.model.reread import Phase
from replicator.operations.reread import OnProgress as OnRequests
from replicator.operations.reread import reread
from replicator.verify.mirror_check import OnProgress, Wanted, verify
from replicator.verify.results import Report, Verdict, repaired_part


def repair(
    config: Config, wanted: Wanted, report: Report, on_requests: OnRequests, on_progress: OnProgress
) -> Report:
    """Return the report after the repair; `report` itself if no table differs that the source has.

    A re-read writes exactly the rows that differ, in one commit, to mirror and changelog. It reads only ranges of keys
    in which rows differ, if the key begins with an integer or BINARY and the columns are the same.

    Raises:
        CheckFailed: a table could not be read.
        ReplicatorError: as `reread` and `verify`.
    """
    different = {result.table for result in report.tables if result.verdict is Verdict.DIFFERENT}
    tables = [table for table in mirrored_tables(config) if str(table) in different]
    if not tables:
        return report
    results = {result.table: result for result in report.tables}
    narrowed = {t: part for t in tables if (part := repaired_part(results[str(t)])) is not None}
    requests = reread(config, tables, "verify", on_requests, narrowed)
    if failed := [request for request in requests if request.phase is Phase.FAILED]:
        raise CheckFailed(f"{failed[0].table} could not be read again: {failed[0].problem}")
    changed = {str(request.table): request.changed or 0 for request in requests}
    again = verify(config, replace(wanted, patterns=tuple(map(str, tables))), on_progress)
    repaired = {t.table: replace(t, repaired=changed[t.table]) for t in again.tables if t.table in changed}
    return replace(
        report,
        ended_ms=again.ended_ms,
        tables=[repaired.get(result.table, result) for result in report.tables],
    )
