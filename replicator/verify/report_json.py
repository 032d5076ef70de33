"""Write the report of a check for programs; described in schemas/verify-report-v1.json."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from replicator.verify.results import Kind, Report, TableResult


def to_json(report: Report) -> dict[str, Any]:
    """Return a report as plain values."""
    return {
        "version": 1,
        "verdict": str(report.verdict),
        "mirror": report.mirror,
        "engine_version": report.version,
        "source_version": report.server_version,
        "position": report.position,
        "gtids": report.gtids,
        "began_ms": report.began_ms,
        "ended_ms": report.ended_ms,
        "options": dict(report.options),
        "tables": [_table(table) for table in report.tables],
    }


def _table(result: TableResult) -> dict[str, Any]:
    values: Mapping[str, Any] = asdict(result)
    return {
        "table": result.table,
        "verdict": str(result.verdict),
        "reason": result.reason,
        "source_rows": result.source_rows,
        "lake_rows": result.lake_rows,
        "missing": result.counts.get(Kind.MISSING, 0),
        "unexpected": result.counts.get(Kind.UNEXPECTED, 0),
        "different": result.counts.get(Kind.DIFFERENT, 0),
        "complete": result.complete,
        "schema": [{"severity": str(f.severity), "text": f.text} for f in result.schema],
        "rows": [
            {**row, "kind": str(row["kind"]), "columns": list(row["columns"])} for row in values["rows"]
        ],
        "by": result.by,
        "chunks": list(values["chunks"]),
        "fetched_rows": result.fetched,
        "undone_images": result.later,
        "sampled": result.is_sampled,
        "excluded_columns": list(result.excluded),
        "masked_columns": list(result.masked),
        "seconds": round(result.seconds, 3),
        "position": result.position,
        "since": result.since,
        "earlier_rows": result.earlier,
        "checks": result.checks,
        "repaired": result.repaired,
    }
