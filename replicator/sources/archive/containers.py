"""The files with events: Parquet, and Avro in archives of versions up to 3. The ending of the name tells the format."""

import io
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType, to_parsing_canonical_form

from replicator.errors import ArchiveError
from replicator.model.commit_marker import OffsetRange
from replicator.sources.archive.format import EVENT_SCHEMA, RESTORE, Event

SUFFIX: Final = ".parquet"
"""The ending of new files; the others are Avro."""

EVENTS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The columns of a file, which schemas/event-archive-v2.parquet.txt describes."""

_GROUP_ROWS: Final = 10_000
_GROUP_BYTES: Final = 16 << 20
"""Number of events, and how many bytes of events of the mean size, that are one row group, which readers hold."""
_FEW_VALUES: Final = ["topic", "partition", "headers.list.element.key", "headers.list.element.value"]
"""Columns with few different values, which are stored once in each row group."""
_LARGE: Final = frozenset({"key", "value"})
_REQUIRED: Final = frozenset({"topic", "partition", "offset", "timestamp", "headers"})
_ASCENDING: Final = dict.fromkeys(("offset", "timestamp"), "DELTA_BINARY_PACKED")

_AVRO: Final = to_parsing_canonical_form(EVENT_SCHEMA)
_DAMAGE: Final = (
    *(OSError, EOFError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError),
    *(MemoryError, RecursionError, struct.error, zlib.error, pa.ArrowException),
    *(SchemaResolutionError, SchemaParseException, UnknownType),
)
"""Exceptions that readers raise for a truncated or modified file."""


def container(events: pa.Table) -> bytes:
    """Return a file with these events, which are sorted by topic, partition and offset."""
    rows = _GROUP_BYTES * events.num_rows // events.nbytes
    stream = pa.BufferOutputStream()
    pq.write_table(
        events,
        stream,
        row_group_size=max(1, min(_GROUP_ROWS, rows)),
        compression="zstd",
        compression_level=1,
        use_dictionary=_FEW_VALUES,
        column_encoding=_ASCENDING,
        write_statistics=False,
        store_schema=False,
    )
    content: bytes = stream.getvalue().to_pybytes()
    return content


def read_batches(
    content: bytes, name: str, number: int = 0, of: int = 1, *, columns: Sequence[str] = EVENTS.names
) -> Iterator[pa.RecordBatch]:
    """Yield the events of those parts of a file whose number modulo `of` is `number`, in the order of the file.

    Parts are the row groups of Parquet, and the blocks of Avro. `name` tells the format, and is for errors.

    Raises:
        ArchiveError: the file is damaged.
    """
    read = _parquet if name.endswith(SUFFIX) else _avro
    try:
        yield from read(content, lambda part: part % of == number, columns)
    except _DAMAGE as error:
        raise ArchiveError(f"{name} is damaged: {type(error).__name__}: {error}", RESTORE) from error


def _parquet(
    content: bytes, is_wanted: Callable[[int], bool], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(pa.BufferReader(content))
    if not file.schema_arrow.equals(EVENTS):
        raise ValueError("its columns are others")
    for part in filter(is_wanted, range(file.num_row_groups)):
        _refuse_repeated(file.metadata.row_group(part))
        table = file.read_row_group(part, columns=list(columns), use_threads=False)
        # Otherwise, a text that is not UTF-8 is noticed only by whoever reads it.
        table.validate(full=True)
        _refuse_missing(table)
        yield from table.select(columns).combine_chunks().to_batches()


def _refuse_repeated(group: pq.RowGroupMetaData) -> None:
    """Refuse a row group with a dictionary of keys or values: few bytes of one could be many gigabytes of events."""
    columns = [group.column(i) for i in range(group.num_columns)]
    if any(c.path_in_schema in _LARGE and "DICTIONARY" in " ".join(c.encodings) for c in columns):
        raise ValueError("its keys or values have a dictionary")


def _refuse_missing(events: pa.Table) -> None:
    for name in _REQUIRED & set(events.column_names):
        if events.column(name).null_count:
            raise ValueError(f"an event has no {name}")
    if "headers" in events.column_names:
        headers = pc.list_flatten(events.column("headers"))
        if headers.null_count or pc.struct_field(headers, "key").null_count:
            raise ValueError("a header has no key")


def _avro(
    content: bytes, is_wanted: Callable[[int], bool], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    blocks = fastavro.block_reader(io.BytesIO(content))
    if to_parsing_canonical_form(blocks.writer_schema) != _AVRO:
        raise ValueError("its schema is another one")
    found, size = list[Mapping[str, Any]](), 0
    records: Iterator[Any] = chain.from_iterable(block for i, block in enumerate(blocks) if is_wanted(i))
    for record in records:
        found.append(record)
        size += len(record["value"] or b"")
        if len(found) >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield _batch(found, columns)
            found, size = [], 0
    if found:
        yield _batch(found, columns)


def _batch(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pa.RecordBatch:
    fields = [EVENTS.field(name) for name in columns]
    arrays = [pa.array([record[field.name] for record in records], field.type) for field in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def within(events: pa.RecordBatch, ranges: Sequence[OffsetRange]) -> pa.RecordBatch:
    """Return those events that are in one of the ranges."""
    wanted = reduce(pc.or_, (_is_in(events, r) for r in ranges), pa.scalar(value=False))
    wanted = pc.fill_null(wanted, fill_value=False)
    return events if pc.all(wanted).as_py() else events.filter(wanted)


def _is_in(events: pa.RecordBatch, r: OffsetRange) -> pa.BooleanArray:
    offsets = events.column("offset")
    conditions = (
        pc.equal(events.column("topic"), r.topic),
        pc.equal(events.column("partition"), r.partition),
        pc.greater_equal(offsets, r.start),
        pc.less(offsets, r.end),
    )
    return reduce(pc.and_, conditions)


def events_of(events: pa.RecordBatch) -> Iterator[Event]:
    """Yield the rows of `EVENTS`."""
    columns = (events.column(name).to_pylist() for name in EVENTS.names)
    for topic, partition, offset, timestamp, key, value, headers in zip(*columns, strict=True):
        pairs = tuple((header["key"], header["value"]) for header in headers)
        yield Event(topic, partition, offset, timestamp, key, value, pairs)
