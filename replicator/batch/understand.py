"""Raw records → decoded events, with the schema that the source has and the census of what is there."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
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
    book, epochs, since = engine.book, None, _since(before, work)
    book.look_at_decimals(work.table, records)
    if book.knows(work.table):
        epochs = book.epochs(work.table, since)
    if not epochs:
        epochs = _learned(engine, work, records)
    decoded, shape = _decode(engine, work, records, epochs, since, options, UNFAMILIAR)
    decoded, census = _census(decoded, work, before, shape)
    if census.unfamiliar:
        decoded.release()
        learned = _learned(engine, work, records)
        decoded, shape = _decode(engine, work, records, learned, since, options, STRAY)
        decoded, census = _census(decoded, work, before, shape)
    return decoded, shape, census


def _learned(engine: Engine, work: Work, records: DataFrame) -> list[Epoch]:
    """The schemas that `records` carry. Raises SchemaFound where they tell of a version that was not known."""
    book = engine.book
    known = len(book.line(work.table).versions)
    epochs = book.learn(work.table, records, patient=engine.log.grows)
    found = len(book.line(work.table).versions)
    if found > max(known, 1) or (found > known and engine.ledger.progress(work.table).schema_at is not None):
        raise SchemaFound
    return epochs


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
