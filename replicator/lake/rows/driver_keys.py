"""Read the keys of few rows on the driver, which takes it less time than Spark needs to begin."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from replicator.arrow_types import arrow_type
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.files.arrow_schemas import field_id
from replicator.lake.files.data_files import by_file
from replicator.lake.files.driver_files import content_of
from replicator.lake.files.partitions import data_file_ref
from replicator.lake.files.small_files import Positions
from replicator.lake.reading.folders import local_path
from replicator.lake.rows.locations import FileKeys, KeyColumns

_MOST_ROWS: Final = 200_000
"""Of data files and their delete files together."""
_MOST_BYTES: Final = 8_000_000
_MOST_FILES: Final = 10
"""Of those that are not on this machine: their content passes through Java, one after the other."""
_FORMAT: Final = "PARQUET"
_POSITIONS: Final = "POSITION_DELETES"


def few_keys(
    table: LakeTable, files: Sequence[tuple[Any, Sequence[Any]]], key: KeyColumns
) -> list[FileKeys] | None:
    """Return the keys of the rows of data files that their delete files do not delete, as columns k0, k1, ….

    None if Spark must read them: they are too many, or in files of another kind than the engine writes.
    """
    deletes = {str(delete.location()): delete for _, of_file in files for delete in of_file}
    every = [*(file for file, _ in files), *deletes.values()]
    if not _is_little(every) or any(str(d.content()) != _POSITIONS for d in deletes.values()):
        return None
    ids = {field["name"]: int(field["id"]) for field in json.loads(table.schema_json())["fields"]}
    wanted = {ids[name]: arrow_type(kind) for name, kind in key}
    try:
        gone = {path: _deleted(_source(table, path)) for path in deletes}
        return [
            _rows(table, file, wanted, [gone[str(delete.location())] for delete in of_file])
            for file, of_file in files
        ]
    except (OSError, KeyError, pa.ArrowException):
        # Spark can read it, or tells what is wrong.
        return None


def _is_little(files: Sequence[Any]) -> bool:
    if sum(int(file.recordCount()) for file in files) > _MOST_ROWS:
        return False
    far = [file for file in files if local_path(str(file.location())) is None]
    is_near = len(far) <= _MOST_FILES and sum(int(file.fileSizeInBytes()) for file in far) <= _MOST_BYTES
    return is_near and all(str(file.format()) == _FORMAT for file in files)


def _source(table: LakeTable, path: str) -> Any:
    return local_path(path) or pa.BufferReader(content_of(table, path))


def _deleted(source: Any) -> dict[str, Positions]:
    """Return the positions that a delete file has, by data file."""
    rows = pq.read_table(source, columns=["file_path", "pos"])
    return {found.file.path: found.positions for found in by_file(rows)}


def _rows(
    table: LakeTable, file: Any, wanted: Mapping[int, pa.DataType], deleted: Sequence[Mapping[str, Positions]]
) -> FileKeys:
    path = str(file.location())
    parquet = pq.ParquetFile(_source(table, path))
    names = {field_id(field): field.name for field in parquet.schema_arrow}
    rows = parquet.read([names[number] for number in wanted])
    columns = [rows.column(names[number]).cast(kind) for number, kind in wanted.items()]
    keys = pa.table(columns, names=[f"k{i}" for i in range(len(columns))])
    left = np.ones(keys.num_rows, np.bool_)
    for found in deleted:
        if path in found:
            left[found[path]] = False
    places = np.flatnonzero(left).astype(np.uint64)
    return FileKeys(keys.filter(pa.array(left)), data_file_ref(table, file), places)
