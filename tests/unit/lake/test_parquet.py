"""How rows are written as Parquet files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from replicator.lake.files.parquet import FileStyle, write_local


def test_only_columns_of_few_values_have_dictionaries(tmp_path: Path) -> None:
    """Those inside of structs too, each by itself."""
    inner = pa.array([{"os": "linux", "id": n, "more": {"id": n, "few": n % 9}} for n in range(20_000)])
    found = pa.table({"id": pa.array(range(20_000)), "kind": ["x"] * 20_000, "device": inner})
    file = write_local(FileStyle(str(tmp_path), found.schema, "zstd"), "label", found)
    group = pq.read_metadata(file.path).row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    assert {column.path_in_schema for column in columns if column.has_dictionary_page} == {
        "kind",
        "device.os",
        "device.more.few",
    }
    few = write_local(FileStyle(str(tmp_path), found.schema, "zstd"), "label", found.slice(0, 10))
    group = pq.read_metadata(few.path).row_group(0)
    assert all(group.column(i).has_dictionary_page for i in range(group.num_columns))
