"""Files of rows that Spark's tasks only append: one for each partition, before rows fill the memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replicator.lake.files import task_files
from replicator.lake.files.parquet import FileStyle, WrittenFile, footer_of
from replicator.lake.files.task_files import UNWRITTEN, AppendedFiles, files_in
from replicator.lake.files.time_partitions import MOST_PARTITIONS, TimePartitions

HOUR = 3_600_000_000
SCHEMA = pa.schema([pa.field("n", pa.int64()), pa.field("at", pa.timestamp("us", "UTC"))])


def style(folder: Path, *, by_hour: bool = True) -> FileStyle:
    return FileStyle(str(folder), SCHEMA, "zstd", TimePartitions("at", "hour") if by_hour else None)


def rows(*found: tuple[int, int | None]) -> pa.Table:
    numbers, moments = [n for n, _ in found], [at for _, at in found]
    return pa.table(
        [pa.array(numbers, pa.int64()), pa.array(moments, pa.int64()).cast(SCHEMA.types[1])], SCHEMA
    )


def written(wanted: FileStyle, *parts: pa.Table) -> list[dict[str, Any]]:
    files = AppendedFiles(wanted, "label")
    found = [batch for part in parts for batch in files.add(part)]
    return [row for batch in [*found, *files.close()] for row in batch.to_pylist()]


def numbers(files: Sequence[WrittenFile]) -> list[list[int]]:
    return sorted(pq.read_table(file.path).column("n").to_pylist() for file in files)


def test_each_partition_has_a_file_with_its_rows_in_their_order(tmp_path: Path) -> None:
    parts = rows((1, HOUR), (2, None), (3, 2 * HOUR - 1)), rows((4, 0), (5, None), (6, HOUR + 1)), rows()
    files = files_in(written(style(tmp_path), *parts))
    assert numbers(files) == [[1, 3, 6], [2, 5], [4]]
    assert {file.moment for file in files} == {HOUR, None, 0}
    for file in files:
        path = Path(file.path)
        assert (path.parent, path.name.partition("-")[0]) == (tmp_path, "label")
        with path.open("rb") as content:
            assert (file.size, file.footer) == (path.stat().st_size, footer_of(content))


def test_rows_without_partitions_have_one_file(tmp_path: Path) -> None:
    files = files_in(written(style(tmp_path, by_hour=False), rows((1, HOUR)), rows(), rows((2, None))))
    assert numbers(files) == [[1, 2]]
    assert files[0].moment is None
    assert written(style(tmp_path, by_hour=False), rows()) == []


def test_rows_are_written_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_files, "MOST_HELD", 50)
    parts = [rows((1, 0), (2, HOUR)), rows((3, 0), (4, HOUR)), rows((5, HOUR))]
    assert numbers(files_in(written(style(tmp_path), *parts))) == [[1, 3], [2, 4], [5]]


def test_rows_of_too_many_partitions_are_not_written(tmp_path: Path) -> None:
    most = [(n, n * HOUR) for n in range(MOST_PARTITIONS)]
    assert len(files_in(written(style(tmp_path), rows(*most)))) == MOST_PARTITIONS
    files = AppendedFiles(style(tmp_path / "none"), "label")
    for part, is_right in ((rows(*most), True), (rows((100, -1)), False)):
        found = [row["kind"] for batch in files.add(part) for row in batch.to_pylist()]
        assert (found, files.is_right) == ([] if is_right else [UNWRITTEN], is_right)
    assert not (tmp_path / "none").exists()
