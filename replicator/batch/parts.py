"""Where a batch is cut, because rows from before a change of the schema and rows from after it must not be mixed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.batch.work import Engine, Work, records_of
from replicator.decode.envelope import event_place
from replicator.errors import (
    UnsupportedChange,
)
from replicator.model.table import TableId

_NO_END: Final = 1 << 62
"""An offset behind all others."""


def has_news(engine: Engine, table: TableId) -> bool:
    """Whether the source's schema changed since the version that the lake has, as far as is known."""
    known = engine.ledger.progress(table).schema_at
    if known is None:
        return False
    line = engine.book.line(table)
    return bool(line.after(known)) or (line.gone is not None and line.gone.at > known)


def newest_known(engine: Engine, table: TableId) -> int | None:
    """The place of the newest version of the source's schema that is known; None where the lake has that already.

    Raises:
        UnsupportedChange: rows before it and rows after it must not be mixed.
    """
    line, known = engine.book.line(table), engine.ledger.progress(table).schema_at
    if known is None or not line.after(known):
        return None
    first, newest = line.index_at(known), len(line.versions) - 1
    if any(line.is_barrier(i, first) for i in range(first + 1, newest + 1)):
        raise UnsupportedChange(
            f"the schema of {table} changed since the mirror ran last",
            "let the mirror follow it first: replicator run --until-caught-up; then replay the events",
        )
    return line.versions[newest].at


def parts(engine: Engine, work: Work) -> list[Work]:
    """`work`, cut where the schema changed so that rows before and rows after must not be mixed; see `is_barrier`."""
    line = engine.book.line(work.table)
    known = engine.ledger.progress(work.table).schema_at
    news = line.after(known) if known is not None else line.own_versions[1:]
    if not news:
        return [work]
    first = line.own if known is None else line.index_at(known)
    newest = len(line.versions) - 1
    starts: dict[int, dict[int, int]] = {}
    if work.ranges:
        events = engine.book.with_sources(records_of(engine, work))
        starts = _first_offsets(events, [v.at for v in line.versions])
        newest = max(starts, default=first)
        first = min(starts, default=first) if known is None else first
    newest = max(newest, first)
    ends, since = [], first
    for i in range(first + 1, newest + 1):
        if line.is_barrier(i, since):
            ends.append(i - 1)
            since = i - 1
    parts, left = [], work
    for end in ends:
        later = [offsets for version, offsets in starts.items() if version > end]
        part, left = _cut(left, {p: min(o[p] for o in later if p in o) for o in later for p in o})
        parts.append(replace(part, until=line.versions[end].at))
    return [*parts, replace(left, until=line.versions[newest].at)]


def _first_offsets(records: DataFrame, places: Sequence[int]) -> dict[int, dict[int, int]]:
    """Version (by the `places` where versions begin) → partition → the first offset of an event of it."""
    hi = event_place(F.col("source"))
    version = F.lit(0)
    for i, at in enumerate(places[1:], start=1):
        version = F.when(hi >= at, F.lit(i)).otherwise(version)
    found: dict[int, dict[int, int]] = {}
    events = records.where(F.col("value").isNotNull() & hi.isNotNull())
    for row in (
        events.groupBy("partition", version.alias("version")).agg(F.min("offset").alias("first")).collect()
    ):
        found.setdefault(row["version"], {})[row["partition"]] = row["first"]
    return found


def _cut(work: Work, at: Mapping[int, int]) -> tuple[Work, Work]:
    """`work` before and from the offsets `at` (partition → offset); partitions that are not named come before."""
    before, after = [], []
    for r in work.ranges:
        middle = at.get(r.partition, r.end)
        before += [replace(r, end=middle)] if middle > r.start else []
        after += [replace(r, start=middle)] if middle < r.end else []
    records: list[pa.Table | None] = [None, None]
    if work.records is not None:
        early = pc.less(
            work.records.column("offset"),
            pa.array([at.get(p, _NO_END) for p in work.records.column("partition").to_pylist()], pa.int64()),
        )
        records = [work.records.filter(early), work.records.filter(pc.invert(early))]
    return (
        replace(work, ranges=tuple(before), records=records[0]),
        replace(work, ranges=tuple(after), records=records[1]),
    )
