"""Positions of rows in data files, as delete files need them."""

import numpy as np
import pyarrow as pa

from replicator.lake.files.data_files import FilePositions, by_file, joined
from replicator.lake.files.partitions import DataFileRef


def positions(path: str, *at: int) -> FilePositions:
    return FilePositions(DataFileRef(path), np.array(at, np.int64))


def test_positions_of_one_file_are_joined_in_ascending_order_each_once() -> None:
    found = joined([positions("b", 4, 9), positions("a", 1), positions("b", 2, 4)])
    assert [(f.file.path, f.positions.tolist()) for f in found] == [("b", [2, 4, 9]), ("a", [1])]


def test_positions_are_grouped_by_file_and_sorted() -> None:
    rows = pa.table({"file_path": ["b", "a", "b", "a"], "pos": [7, 5, 3, 9]})
    found = by_file(rows)
    assert [(f.file.path, f.positions.tolist()) for f in found] == [("a", [5, 9]), ("b", [3, 7])]
