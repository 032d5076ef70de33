"""The rows of small results that the driver holds follow from the net changes of commits."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from replicator.pipelines.held import MOST_ROWS
from replicator.pipelines.output import small_results
from replicator.pipelines.output.small_results import SmallResults

KEY = ("day", "price")
COLUMNS = pa.schema(
    [("day", pa.string()), ("price", pa.decimal128(9, 2)), ("state", pa.struct([("rows", pa.int64())]))]
)
ROWS = [("a", 1, 5), ("a", None, 6), (None, 1, 7), (None, None, 8), ("b", 2, 9)]


@dataclass
class Result:
    """What is asked of the table of a result."""

    snapshot_id: int | None = 1
    total_rows: int = 5
    uuid: str = "u"


def table(*rows: tuple[Any, ...], schema: pa.Schema = COLUMNS) -> pa.Table:
    values = [(day, None if price is None else Decimal(price), {"rows": n}) for day, price, n in rows]
    columns = zip(*values, strict=True) if values else ([], [], [])
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def net(*changes: tuple[Any, ...]) -> pa.Table:
    """Spark says of some columns that they are never null."""
    never = pa.struct([pa.field("rows", pa.int64(), nullable=False)])
    changed = table(
        *(c[:-1] for c in changes), schema=COLUMNS.set(2, pa.field("state", never, nullable=False))
    )
    return changed.append_column("_weight", pa.array([c[-1] for c in changes], pa.int64()))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[pa.Table]:
    """What the table has, each time it is read."""
    found = [table(*ROWS)]
    monkeypatch.setattr(small_results, "rows_of", lambda *_: None)
    monkeypatch.setattr(small_results, "held_rows", lambda *_: found.pop())
    return found


def held(small: SmallResults, result: Result, key: tuple[str, ...] = KEY) -> pa.Table | None:
    return small.rows(None, result, key)  # type: ignore[arg-type]


def values(rows: pa.Table | None) -> list[tuple[Any, ...]]:
    assert rows is not None
    return [(row["day"], row["price"], row["state"]["rows"]) for row in rows.to_pylist()]


def test_rows_of_a_snapshot_are_read_once(reads: list[pa.Table]) -> None:
    small = SmallResults()
    assert values(held(small, Result())) == values(held(small, Result())) == ROWS
    reads.append(table(*ROWS[:2]))
    assert values(held(small, Result(snapshot_id=2))) == ROWS[:2], "others wrote a snapshot"


def test_commits_replace_rows_of_a_key_with_nulls(reads: list[pa.Table]) -> None:
    small = SmallResults()
    held(small, Result())
    changes = net(("a", None, 6, -1), ("a", None, 60, 1), (None, None, 8, -1), ("c", 2, 10, 1))
    small.committed("u", 1, 2, changes, KEY)
    assert values(held(small, Result(snapshot_id=2))) == [
        ("a", 1, 5), (None, 1, 7), ("b", 2, 9), ("a", None, 60), ("c", 2, 10),
    ]  # fmt: skip
    small.committed("u", 2, 2, net(), KEY)
    assert len(values(held(small, Result(snapshot_id=2)))) == 5, "a commit that changed no row"


def test_a_result_without_rows_gets_some(reads: list[pa.Table]) -> None:
    small, empty = SmallResults(), pa.Table.from_batches([], COLUMNS)
    reads[:] = [empty]
    held(small, Result())
    small.committed("u", 1, 2, pa.Table.from_batches([], net().schema), KEY)
    small.committed("u", 2, 3, net(("a", 1, 5, 1)), KEY)
    assert values(held(small, Result(snapshot_id=3))) == [("a", 1, 5)]


@pytest.mark.parametrize(
    ("since", "head", "changes"),
    [(0, 2, net()), (1, None, net()), (1, 2, None)],
    ids=["missed", "lost", "large"],
)
def test_rows_are_read_again_after_a_commit_that_is_not_known(
    reads: list[pa.Table], since: int, head: int | None, changes: pa.Table | None
) -> None:
    small = SmallResults()
    held(small, Result())
    small.committed("u", since, head, changes, KEY)
    reads.append(table(*ROWS[:2]))
    assert values(held(small, Result(snapshot_id=2))) == ROWS[:2]


def test_large_results_and_those_without_a_fit_key_are_not_held(reads: list[pa.Table]) -> None:
    small = SmallResults()
    assert held(small, Result(total_rows=MOST_ROWS + 1)) is None
    assert held(small, Result(snapshot_id=None)) is None
    assert held(small, Result(), key=()) is None
    reads.append(table(*ROWS))
    assert held(small, Result(), key=("state",)) is None


def test_rows_that_were_not_used_for_long_are_forgotten(
    reads: list[pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_results, "_MOST_BYTES", 2 * table(*ROWS).nbytes)
    small = SmallResults()
    for uuid in ("u", "v", "u", "w", "u"):
        if uuid not in small._held:
            reads[:] = [table(*ROWS)]
        held(small, Result(uuid=uuid))
    assert list(small._held) == ["w", "u"]
