"""Raw records → decoded events, with the schema that the source has and the census of what is there."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator import census as counting
from replicator.batch.work import Engine, Work, records_of
from replicator.collapse import has_short_key, key_columns
from replicator.config import TableOptions
from replicator.decode.envelope import EVENT_DETAILS, TAIL, Epoch
from replicator.decode.epochs import Aligned
from replicator.errors import (
    MissingKey,
    MissingSchema,
    UnknownWriter,
)
from replicator.held import FEW_EVENTS, Held, control, hold
from replicator.model.census import STRAY, UNFAMILIAR, Census
from replicator.model.commit import PartitionProgress
from replicator.model.lineage import BEGINNING, Lineage, SchemaVersion
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableSchema
from replicator.model.types import STRING
from replicator.observe import Stopwatch
from replicator.spark import local_frame

_FIRST_EVENTS: Final = 50
"""How many events are looked at, in all, before the others are decoded."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The source's schema as a part of a batch leaves it: version `target` of `line`, and how events fit it."""

    line: Lineage
    target: int
    aligned: Aligned

    @property
    def version(self) -> SchemaVersion:
        return self.line.versions[self.target]

    @property
    def schema(self) -> TableSchema:
        """The columns that the source has."""
        return self.aligned.schema

    @property
    def frame(self) -> TableSchema:
        """The columns that decoded images have."""
        return self.aligned.frame


class SchemaFound(Exception):  # noqa: N818 no error
    """A version of the table was found that nothing told of; the work must be looked through again."""


@contextmanager
def understood(
    engine: Engine, work: Work, options: TableOptions, watch: Stopwatch
) -> Iterator[tuple[Held, Shape | None, Census]]:
    """The decoded events of the batch, materialized once and released at the end, their shape and their census."""
    behind = None if work.again else engine.ledger.progress(work.table).behind
    before = {} if behind is None else behind.progress.get(work.topic, {})
    records = records_of(engine, work)
    with watch.stage("decode"):
        try:
            decoded, shape, census = _schemas_found(engine, work, options, records, before)
        except UnknownWriter:
            raise
        except MissingSchema as error:
            decoded, census = _without_schema(engine, work, records, before, error)
            shape = None
    try:
        yield decoded, shape, census
    finally:
        decoded.release()


def unchanged(engine: Engine, work: Work, options: TableOptions) -> Shape:
    """The shape of a part without a change event."""
    if engine.book.line(work.table):
        return _shape(engine, work, options, [], None)
    nothing = TableSchema(())
    line = Lineage((SchemaVersion(BEGINNING, SourcePosition("", 0), 0, nothing, {}),))
    return Shape(line, 0, Aligned((), nothing, nothing, ()))


def _schemas_found(
    engine: Engine,
    work: Work,
    options: TableOptions,
    records: DataFrame,
    before: Mapping[int, PartitionProgress],
) -> tuple[Held, Shape, Census]:
    """The records decoded with the schemas that are known, or learned from them where these do not fit."""
    since = _since(before, work)
    epochs = _expected(engine, work, records, since)
    decoded, shape = _decode(engine, work, records, epochs, since, options, UNFAMILIAR)
    decoded, census = _census(decoded, work, before, shape)
    if census.unfamiliar:
        decoded.release()
        with _news(engine, work):
            learned = engine.book.learn(work.table, records, patient=engine.log.grows)
        decoded, shape = _decode(engine, work, records, learned, since, options, STRAY)
        decoded, census = _census(decoded, work, before, shape)
    return decoded, shape, census


def _expected(
    engine: Engine, work: Work, records: DataFrame, since: SourcePosition | None
) -> Sequence[Epoch]:
    """The schemas that the records may have: those that are known, or what the first events tell, or else all."""
    book, table = engine.book, work.table
    carried = False
    if book.wants_a_look(table):
        first = _first_events(engine, work)
        values = first.column("value").to_pylist()
        carried = any(map(book.carries_schema, values))
        if carried:
            with _news(engine, work):
                few = local_frame(engine.spark, first)
                if epochs := book.learn_from_few(table, few, patient=engine.log.grows):
                    return epochs
        elif values:
            book.look_at_decimals(table, values)
    # Definitions alone do not fit events that carry their schema.
    if book.knows(table) and not carried and (known := book.epochs(table, since)):
        return known
    with _news(engine, work):
        return book.learn(table, records, patient=engine.log.grows)


def _first_events(engine: Engine, work: Work) -> pa.Table:
    """A few records with a value, the first ones of each partition; see RECORDS."""
    each = -(-_FIRST_EVENTS // len(work.ranges))
    heads = [replace(r, end=min(r.end, r.start + each)) for r in work.ranges]
    if work.records is None:
        first = engine.log.read(engine.spark, heads).toArrow()
    else:
        partition, offset = pc.field("partition"), pc.field("offset")
        inside = [(partition == r.partition) & (offset < r.end) for r in heads]
        first = work.records.filter(reduce(or_, inside))
    return first.filter(pc.field("value").is_valid())


@contextmanager
def _news(engine: Engine, work: Work) -> Iterator[None]:
    """Learning from events. Raises SchemaFound where they told of a version that was not known."""
    book = engine.book
    known = len(book.line(work.table).versions)
    yield
    found = len(book.line(work.table).versions)
    if found > max(known, 1) or (found > known and engine.ledger.progress(work.table).schema_at is not None):
        raise SchemaFound


def _census(
    decoded: Held, work: Work, before: Mapping[int, PartitionProgress], shape: Shape | None = None
) -> tuple[Held, Census]:
    """The census of the events; and these with their keys, where the driver can hold them."""

    def details(partition: int, first: int, last: int) -> pa.Table:
        inside = (F.col("partition") == partition) & F.col("offset").between(first, last)
        return decoded.frame.where(inside).select(*EVENT_DETAILS).toArrow()

    keys = key_columns(shape.frame) if shape is not None and has_short_key(shape.frame) else []
    numbers, noted = control(decoded, keys)
    return noted, counting.take(numbers, work.ranges, before, details)


def _without_schema(
    engine: Engine,
    work: Work,
    records: DataFrame,
    before: Mapping[int, PartitionProgress],
    error: MissingSchema,
) -> tuple[Held, Census]:
    """Records of which none has a schema, for quarantine. Raises `error` where one is a change event all the same."""
    anything = TableSchema((Column("anything", STRING),))
    frame = engine.book.decode(
        records, [Epoch(anything)], anything, work.ranges, for_changelog=True, stray=STRAY
    )
    decoded = hold(frame, few=work.records is not None)
    decoded, census = _census(decoded, work, before)
    if census.changes or census.duplicates:
        decoded.release()
        raise error
    return decoded, census


def _since(before: Mapping[int, PartitionProgress], work: Work) -> SourcePosition | None:
    """A position that all events of the batch lie behind; None where they may be of any time."""
    highs = [p.high_water if (p := before.get(r.partition)) else None for r in work.ranges]
    positions = [high.position for high in highs if high is not None]
    return min(positions) if len(positions) == len(highs) else None


def _decode(
    engine: Engine,
    work: Work,
    records: DataFrame,
    epochs: Sequence[Epoch],
    since: SourcePosition | None,
    options: TableOptions,
    stray: str,
) -> tuple[Held, Shape]:
    """The decoded frame, kept in memory once it was computed."""
    shape = _shape(engine, work, options, epochs, since)
    few = work.records is not None
    decoded = engine.book.decode(
        records,
        shape.aligned.epochs,
        shape.frame,
        work.ranges,
        for_changelog=options.changelog or not shape.schema.key,
        stray=stray,
        tail=FEW_EVENTS if few else TAIL,
    )
    return hold(decoded, few=few), shape


def _shape(
    engine: Engine, work: Work, options: TableOptions, epochs: Sequence[Epoch], since: SourcePosition | None
) -> Shape:
    line = engine.book.line(work.table)
    known = engine.ledger.progress(work.table).schema_at
    at = known if work.until is None else work.until
    target = line.own if at is None else line.index_at(at)
    aligned = engine.book.aligned(work.table, line, epochs, since, target)
    if options.key:
        aligned = aligned.with_key(options.key)
    _check_key(aligned.schema, options, work)
    if rules := engine.rules.of(str(work.table)):
        aligned = aligned.ruled(rules, str(work.table))
    return Shape(line, target, aligned)


def _check_key(schema: TableSchema, options: TableOptions, work: Work) -> None:
    if not schema.key and options.keyless == "pause":
        raise MissingKey(
            f"{options.name} has no primary key, so its rows cannot be told apart",
            f'name a unique key: key = ["…"] under [[table]] name = "{options.name}"; or set keyless there',
        )
    if not schema.key and options.keyless == "identity" and any(r.partition for r in work.ranges):
        raise MissingKey(
            f"{options.name} has no key, and its topic several partitions: "
            "which of its events came first cannot be told",
            "give it a topic of one partition, name a unique key (key), or mirror only its changes: "
            'keyless = "changelog"',
        )
    for name in schema.key:
        if schema.column(name) is None:
            raise MissingKey(
                f"{options.name} has no column {name}, which is configured as its key",
                f"its columns: {', '.join(schema.names)}",
            )
