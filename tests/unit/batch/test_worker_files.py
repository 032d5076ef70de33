"""What Spark's Python workers do with the records of a task: statistics always, files only of ordinary changes."""

import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replicator.batch.events import worker_task
from replicator.batch.events.worker_files import TaskKeys, last_of_tasks
from replicator.batch.events.worker_task import WorkerWriting
from replicator.decode.decoder import Decoder
from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.json.parser import JsonParser
from replicator.lake.files.arrow_schemas import arrow_schema
from replicator.lake.files.parquet import FileStyle, fitting, footer_of, write_local
from replicator.model.batch_stats import UNDECODABLE
from replicator.model.table import Column, TableSchema
from replicator.model.types import INT
from tests.oracle.events import Place, change_event
from tests.support.decoding import ID, RANGES, records

SCHEMA = TableSchema((ID, Column("n", INT)), ("id",))
COLUMNS = [("id", "long"), ("n", "int")]
CHANGE = [("kind", "string"), ("op", "string"), ("pos", "long"), ("offset", "long"), ("commit", "long")]


def style(folder: Path, columns: Sequence[tuple[str, str]], struct: bool = False) -> FileStyle:
    fields: list[dict[str, Any]] = [
        {"id": i, "name": name, "type": kind, "required": False} for i, (name, kind) in enumerate(columns, 1)
    ]
    if struct:
        inner = [
            {"id": i, "name": name, "type": kind, "required": False}
            for i, (name, kind) in enumerate(CHANGE, 20)
        ]
        kind = {"type": "struct", "fields": inner}
        fields.append({"id": 10, "name": "_change", "type": kind, "required": False})
    return FileStyle(str(folder), arrow_schema(json.dumps({"type": "struct", "fields": fields})), "zstd")


def event(op: str, key: int, n: int | None = None, *, pos: int) -> bytes:
    after = None if op == "d" else {"id": key, "n": n}
    before = {"id": key, "n": 0} if op in "ud" else None
    return change_event(op, Place(1, pos), "t", before=before, after=after)


def writing(folder: Path, *, changelog: bool = True) -> WorkerWriting:
    decoder = Decoder(JsonParser(), Decoding((WriterSchema(SCHEMA),), SCHEMA, changelog, UNDECODABLE), RANGES)
    wide = style(folder / "changes", COLUMNS, struct=True) if changelog else None
    return WorkerWriting(decoder, SCHEMA, style(folder / "mirror", COLUMNS), wide, 7, "label")


def written(
    folder: Path, *batches: Sequence[bytes | None], changelog: bool = True
) -> dict[str, list[dict[str, Any]]]:
    """Return kind → the rows that a worker returns for batches of records."""
    whole = records(*[value for batch in batches for value in batch])
    parts, start = [], 0
    for batch in batches:
        parts += whole.slice(start, len(batch)).combine_chunks().to_batches()
        start += len(batch)
    found: dict[str, list[dict[str, Any]]] = {}
    for part in writing(folder, changelog=changelog)(parts):
        for row in part.to_pylist():
            found.setdefault(row["kind"], []).append(row)
    return found


def keys_of(row: dict[str, Any]) -> pa.Table:
    return pa.ipc.open_stream(row["content"]).read_all()


def test_files_have_the_last_row_of_each_key_and_all_changes(tmp_path: Path) -> None:
    found = written(
        tmp_path,
        [event("c", 1, 10, pos=5), event("c", 2, 20, pos=6), event("c", 3, 30, pos=7)],
        [event("u", 1, 11, pos=8), event("d", 2, pos=9), None],
    )
    assert found.keys() == {"numbers", "keys", "mirror", "changelog"}
    (mirror,), (changelog,), (keys,) = found["mirror"], found["changelog"], found["keys"]
    assert pq.read_table(mirror["path"]).to_pylist() == [{"id": 3, "n": 30}, {"id": 1, "n": 11}]
    assert keys_of(keys).select(["k0", "log_key", "pos"]).to_pylist() == [
        {"k0": 3, "log_key": 2, "pos": 0},
        {"k0": 1, "log_key": 3, "pos": 1},
        {"k0": 2, "log_key": 4, "pos": -1},
    ]
    changes = pq.read_table(changelog["path"]).to_pylist()
    assert [(r["id"], r["n"], r["_change"]["kind"], r["_change"]["offset"]) for r in changes] == [
        (1, 10, "INSERT", 0),
        (2, 20, "INSERT", 1),
        (3, 30, "INSERT", 2),
        (1, 0, "UPDATE_BEFORE", 3),
        (1, 11, "UPDATE_AFTER", 3),
        (2, 0, "DELETE", 4),
    ]
    assert {r["_change"]["commit"] for r in changes} == {7}
    content = Path(mirror["path"]).read_bytes()
    assert (mirror["size"], mirror["content"]) == (len(content), footer_of(BytesIO(content)))
    assert sum(keys_of(row).num_rows for row in found["numbers"]) == 5


def test_only_deletes_leave_no_file(tmp_path: Path) -> None:
    found = written(tmp_path, [event("d", 1, pos=5)], changelog=False)
    assert found.keys() == {"numbers", "keys"}
    assert found["keys"][0]["path"] is None


@pytest.mark.parametrize(
    "other", [b"garbage{", change_event("t", Place(1, 9), "t")], ids=["bad event", "TRUNCATE"]
)
def test_other_events_leave_statistics_and_no_file(tmp_path: Path, other: bytes) -> None:
    many = [event("c", key, 1, pos=key) for key in range(1, 500)]
    found = written(tmp_path, many, [other], [event("c", 900, 1, pos=900)])
    assert found.keys() == {"numbers", "unwritten"}
    assert sum(keys_of(row).num_rows for row in found["numbers"]) == 501
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_rows_that_arrow_does_not_convert_leave_no_file(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "n": ["x"]})
    assert fitting(rows, style(tmp_path, COLUMNS).schema) is None


def test_a_file_has_one_row_group(tmp_path: Path) -> None:
    """Bounds of several are those of some of the rows if a text in one of them is very long."""
    wanted = style(tmp_path, COLUMNS)
    rows = fitting(pa.table({"id": range(1_200_000)}), wanted.schema)
    assert rows is not None
    assert pq.read_metadata(write_local(wanted, "label", rows).path).num_row_groups == 1


def test_rows_are_written_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is as that of a task of its own: a row in it may be replaced by a later one."""
    monkeypatch.setattr(worker_task, "MOST_HELD", 1)
    found = written(
        tmp_path,
        [event("c", 1, 10, pos=5), event("c", 2, 20, pos=6)],
        [event("u", 1, 11, pos=7), event("d", 2, pos=8)],
        [event("d", 1, pos=9)],
    )
    assert [len(found[kind]) for kind in ("keys", "mirror", "changelog")] == [3, 2, 3]
    tasks = [TaskKeys(keys_of(row), row["path"]) for row in found["keys"]]
    keys, superseded = last_of_tasks(tasks)
    assert sorted(keys.column("k0").to_pylist()) == [1, 2]
    assert [p.positions.tolist() for p in superseded] == [[0, 1], [0]]
    offsets = [
        [row["offset"] for row in pq.read_table(file["path"]).column("_change").to_pylist()]
        for file in found["changelog"]
    ]
    assert offsets == [[0, 1], [2, 2, 3], [4]]


def test_all_files_of_a_batch_but_the_used_ones_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task whose files are not right, or that fails, may have written some before."""
    monkeypatch.setattr(worker_task, "MOST_HELD", 1)
    found = written(tmp_path, [event("c", 1, 1, pos=5)], [event("c", 2, 1, pos=6)], [b"garbage{"])
    assert len(found["unwritten"]) == 1
    files = {str(file) for file in tmp_path.rglob("*.parquet")}
    assert len(files) == 4
    other = tmp_path / "mirror" / "other-1.parquet"
    other.touch()
    kept = found["mirror"][0]["path"]
    writing(tmp_path).remove_files([kept])
    assert {str(file) for file in tmp_path.rglob("*.parquet")} == {kept, str(other)}


def test_rows_that_a_later_task_replaces_are_superseded() -> None:
    def keys(*rows: tuple[int, int, int]) -> pa.Table:
        names = ("k0", "log_key", "pos")
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])

    tasks = [
        TaskKeys(keys((1, 10, 0), (2, 11, 1), (3, 12, -1)), "a.parquet"),
        TaskKeys(keys((1, 20, -1), (3, 21, 0), (4, 22, 1)), "b.parquet"),
        TaskKeys(keys((4, 30, 0)), "c.parquet"),
    ]
    found, superseded = last_of_tasks(tasks)
    assert sorted(found.column("k0").to_pylist()) == [1, 2, 3, 4]
    assert {p.file.path: p.positions.tolist() for p in superseded} == {"a.parquet": [0], "b.parquet": [1]}
    assert last_of_tasks(tasks[:1])[1] == []
