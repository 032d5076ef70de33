"""Write the report of a check for programs; described in schemas/verify-report-v1.json."""

from typing import Any, Final

from pydantic import TypeAdapter

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


_NAMES: Final = {
    "fetched": "fetched_rows",
    "later": "undone_images",
    "is_sampled": "sampled",
    "excluded": "excluded_columns",
    "masked": "masked_columns",
    "earlier": "earlier_rows",
}
_RESULTS: Final = TypeAdapter(TableResult)
_LEFT_OUT: Final = frozenset({"counts", "offsets", "topic_id", "narrowed", "passing", "upto"})


def _table(result: TableResult) -> dict[str, Any]:
    values = {
        name: value
        for name, value in _RESULTS.dump_python(result, mode="json").items()
        if name not in _LEFT_OUT
    }
    counts = {str(kind): result.counts.get(kind, 0) for kind in Kind}
    return {_NAMES.get(n, n): v for n, v in values.items()} | counts | {"seconds": round(result.seconds, 3)}
