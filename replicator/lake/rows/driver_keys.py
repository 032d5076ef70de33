"""Read the keys of few rows on the driver, which takes it less time than Spark needs to begin."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from replicator.lake.catalog.tables import LakeTable
from replicator.lake.files.arrow_schemas import arrow_type, field_id
from replicator.lake.files.driver_files import content_of
from replicator.lake.files.parquet import local_path
from replicator.lake.rows.keys import Words
from replicator.lake.rows.locations import KeyColumns

_MOST_ROWS: Final = 200_000
"""Of data files and their delete files together."""
_MOST_BYTES: Final = 8_000_000
"""Of those that are not on this machine: their content passes through Java."""
_FORMAT: Final = "PARQUET"
_POSITIONS: Final = "POSITION_DELETES"


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of a data file (a Java object) that are not deleted: their keys, and their positions in it."""

    file: Any
    keys: pa.Table
    positions: Words


def few_keys(
    table: LakeTable, files: Sequence[tuple[Any, Sequence[Any]]], key: KeyColumns
) -> list[FileRows] | None:
    """Return the keys of data files, each with its delete files, as columns k0, k1, ….

    None if Spark must read them: they are too many, or in files of another kind than the engine writes.
    """
    data = {str(file.location()): file for file, _ in files}
    deletes = {str(delete.location()): delete for _, of_file in files for delete in of_file}
    if not _is_little({**data, **deletes}) or any(str(d.content()) != _POSITIONS for d in deletes.values()):
        return None
    ids = {field["name"]: int(field["id"]) for field in json.loads(table.schema_json())["fields"]}
    wanted = {ids[name]: arrow_type(kind) for name, kind in key}
    try:
        # Many data files may have one delete file.
        gone = [pq.read_table(_source(table, path), columns=["file_path", "pos"]) for path in deletes]
        return [
            _rows(
                file, pq.ParquetFile(_source(table, path)), wanted, [_of_file(found, path) for found in gone]
            )
            for path, file in data.items()
        ]
    except (OSError, KeyError, pa.ArrowException):
        # Spark can read it, or tells what is wrong.
        return None


def _is_little(files: Mapping[str, Any]) -> bool:
    if sum(int(file.recordCount()) for file in files.values()) > _MOST_ROWS:
        return False
    far = [file for path, file in files.items() if local_path(path) is None]
    is_near = sum(int(file.fileSizeInBytes()) for file in far) <= _MOST_BYTES
    return is_near and all(str(file.format()) == _FORMAT for file in files.values())


def _source(table: LakeTable, path: str) -> Any:
    return local_path(path) or pa.BufferReader(content_of(table, path))


def _of_file(deleted: pa.Table, path: str) -> Words:
    """Return the positions in the data file `path` that a delete file has."""
    positions = deleted.filter(pc.equal(deleted.column("file_path"), path)).column("pos")
    found: Words = positions.to_numpy().view(np.uint64)
    return found


def _rows(
    file: Any, parquet: pq.ParquetFile, wanted: Mapping[int, pa.DataType], deleted: Sequence[Words]
) -> FileRows:
    names = {field_id(field): field.name for field in parquet.schema_arrow}
    rows = parquet.read([names[number] for number in wanted])
    columns = [rows.column(names[number]).cast(kind) for number, kind in wanted.items()]
    keys = pa.table(columns, names=[f"k{i}" for i in range(len(columns))])
    left = np.ones(keys.num_rows, np.bool_)
    left[np.concatenate([np.empty(0, np.uint64), *deleted])] = False
    return FileRows(file, keys.filter(pa.array(left)), np.flatnonzero(left).astype(np.uint64))
