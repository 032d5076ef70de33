"""Show the contents of an event archive."""

from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console

from replicator.cli.output import cells, new_console, new_table, print_json
from replicator.model.common import counted
from replicator.operations.archive import ArchiveReport, PartitionReport
from replicator.sources.archive.format import Segment
from replicator.sources.archive.origin import Beginning
from replicator.sources.archive.positions import SourceSpan

_OF_SOURCE: Final = ("source times", "positions", "GTIDs")
_ALL_ROWS: Final = {Beginning.WHOLE: "yes", Beginning.PARTIAL: "no", Beginning.UNKNOWN: "unknown"}


def print_archive(report: ArchiveReport, *, segments: bool, as_json: bool) -> None:
    """Print the report; with `segments`, also each segment. JSON always has them."""
    if as_json:
        print_json(_json(report))
        return
    console = new_console()
    console.print(
        f"{report.location}: {counted(report.events, 'event')} in {counted(report.files, 'file')}, "
        f"{report.bytes / 1e6:,.1f} MB, {report.encoding}, since {report.created:%Y-%m-%d %H:%M}"
    )
    _print_partitions(console, report)
    if segments:
        console.print()
        _print_segments(console, report)
    if report.verified is not None and not report.problems:
        console.print(f"{counted(report.verified, 'file')} verified")
    for problem in report.problems:
        console.print(f"[red]{problem}[/]")


def _print_partitions(console: Console, report: ArchiveReport) -> None:
    table = new_table("topic", "partition", "events", "all rows", "offsets", "segments", *_OF_SOURCE)
    for part in report.partitions:
        place, offsets = (part.topic, part.partition), f"{part.first} to {part.last}"
        all_rows = None if part.beginning is None else _ALL_ROWS[part.beginning]
        segments = f"{len(part.segments):,}" + ("" if part.is_indexed else " (not all indexed)")
        row = (*place, part.events, all_rows, offsets, segments, *_source_cells(part.source))
        table.add_row(*cells(*row))
    console.print(table)


def _print_segments(console: Console, report: ArchiveReport) -> None:
    table = new_table("file", "topic", "partition", "events", "offsets", *_OF_SOURCE)
    for part in report.partitions:
        for segment in part.segments:
            place, offsets = (
                (segment.path, segment.topic, segment.partition),
                f"{segment.first} to {segment.last}",
            )
            table.add_row(*cells(*place, segment.count, offsets, *_source_cells(segment.source)))
    console.print(table)


def _source_cells(source: SourceSpan | None) -> tuple[str, str, str]:
    if source is None:
        return "-", "-", "-"
    first, last = (f"{file}:{pos}" for file, pos in (source.first, source.last))
    gtids = ", ".join(f"{uuid}:{low}-{high}" for uuid, (low, high) in sorted(source.gtids.items()))
    return " to ".join(map(_time, source.times)), f"{first} to {last}", gtids or "-"


def _time(millis: int) -> str:
    try:
        return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError):
        return str(millis)


def _json(report: ArchiveReport) -> dict[str, Any]:
    return {
        "location": report.location,
        "topic_prefix": report.topic_prefix,
        "encoding": report.encoding,
        "created": report.created.isoformat(),
        "events": report.events,
        "files": report.files,
        "bytes": report.bytes,
        "verified": report.verified,
        "problems": list(report.problems),
        "partitions": [_partition_json(part) for part in report.partitions],
    }


def _partition_json(part: PartitionReport) -> dict[str, Any]:
    return {
        "topic": part.topic,
        "partition": part.partition,
        "events": part.events,
        "first": part.first,
        "last": part.last,
        "end": part.end,
        "beginning": part.beginning,
        "times_ms": part.times,
        "source": _source_json(part.source),
        "indexed": part.is_indexed,
        "segments": [_segment_json(segment) for segment in part.segments],
    }


def _segment_json(segment: Segment) -> dict[str, Any]:
    return {
        "path": segment.path,
        "events": segment.count,
        "first": segment.first,
        "last": segment.last,
        "times_ms": segment.times,
        "source": _source_json(segment.source),
    }


def _source_json(source: SourceSpan | None) -> dict[str, Any] | None:
    if source is None:
        return None
    first, last = (f"{file}:{pos}" for file, pos in (source.first, source.last))
    gtids = {uuid: list(numbers) for uuid, numbers in sorted(source.gtids.items())}
    return {"first": first, "last": last, "times_ms": source.times, "gtids": gtids}
