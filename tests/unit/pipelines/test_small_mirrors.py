"""The rows of small mirrors follow from the changes that refreshes take."""

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from replicator.pipelines.inputs import small_mirrors
from replicator.pipelines.inputs.progress import InputProgress
from replicator.pipelines.inputs.small_mirrors import MOST_ROWS, SmallMirrors
from replicator.pipelines.inputs.tables import InputKind

FIRST, SECOND = InputProgress("u", 1), InputProgress("u", 2, {0: 5}, 2)
ID = pa.int32()
ROWS = pa.table({"name": ["a", "b", None], "id": pa.array([1, 2, 3], ID)})


@dataclass
class Table:
    """What is asked of a mirror."""

    kind: InputKind = InputKind.MIRROR
    changelog: str | None = "log"
    key: tuple[str, ...] = ("id",)
    total_rows: int = 3
    row_bytes: float = 30.0
    uuid: str = "m"

    @property
    def table(self) -> "Table":
        return self


@dataclass
class State:
    """What is asked of an input at a boundary."""

    progress: InputProgress = FIRST
    since: InputProgress | None = None
    changes_with_key: pa.Table | None = None
    table: Table = field(default_factory=Table)
    columns: tuple[str, ...] = ("name",)
    with_key: tuple[str, ...] = ("name", "id")
    lake: None = None


def net(*changes: tuple[str | None, int, int], kind: pa.DataType = ID) -> pa.Table:
    names, ids, weights = zip(*changes, strict=True)
    return pa.table({"name": pa.array(names, pa.string()), "id": pa.array(ids, kind), "_weight": weights})


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> dict[str, pa.DataType]:
    """The types of the columns of mirrors."""
    found = {"name": pa.string(), "id": ID}
    monkeypatch.setattr(small_mirrors, "columns_of", lambda *_: found)
    monkeypatch.setattr(small_mirrors, "to_arrow_schema", lambda given: pa.schema(list(given.items())))
    return found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The states of which the rows were read."""
    found: list[Any] = []

    def read(state: Any) -> pa.Table:
        found.append(state)
        return ROWS

    monkeypatch.setattr(small_mirrors, "_read", read)
    return found


def names(mirrors: SmallMirrors, state: State) -> list[str | None] | None:
    rows = mirrors.rows(state)  # type: ignore[arg-type]
    assert rows is None or rows.column_names == ["name"]
    return None if rows is None else rows.column("name").to_pylist()


def test_changes_bring_held_rows_to_the_next_boundary(reads: list[Any]) -> None:
    mirrors = SmallMirrors()
    assert names(mirrors, State()) == names(mirrors, State(since=FIRST)) == ["a", "b", None]
    changes = net(("a", 1, -1), ("A", 1, 1), (None, 3, -1), ("d", 4, 1))
    assert names(mirrors, State(SECOND, FIRST, changes)) == ["b", "A", "d"]
    assert names(mirrors, State(SECOND, InputProgress("u", 0))) == ["b", "A", "d"], "another pipeline"
    assert len(reads) == 1


@pytest.mark.parametrize(
    "state",
    [
        State(SECOND, None, net(("x", 9, 1))),
        State(SECOND, InputProgress("u", 0), net(("x", 9, 1))),
        State(SECOND, FIRST, None),
        State(SECOND, FIRST, net(("x", 9, 1), kind=pa.int64())),
    ],
    ids=["computed as a whole", "another boundary", "many changes", "a wider type"],
)
def test_rows_are_read_again_if_they_do_not_follow(reads: list[Any], state: State) -> None:
    mirrors = SmallMirrors()
    names(mirrors, State())
    assert names(mirrors, state) == ["a", "b", None]
    assert len(reads) == 2


@pytest.mark.parametrize(
    "table",
    [
        Table(kind=InputKind.CHANGELOG),
        Table(changelog=None),
        Table(key=()),
        Table(total_rows=MOST_ROWS + 1),
        Table(total_rows=50_000, row_bytes=1_000),
    ],
    ids=["changelog", "no changelog", "no key", "many rows", "large rows"],
)
def test_rows_of_other_tables_are_not_held(reads: list[Any], table: Table) -> None:
    assert names(SmallMirrors(), State(table=table)) is None
    assert not reads


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.int32())])
def test_rows_with_values_that_do_not_cancel_each_other_are_not_held(
    reads: list[Any], kinds: dict[str, pa.DataType], kind: pa.DataType
) -> None:
    kinds["name"] = kind
    assert names(SmallMirrors(), State()) is None
    assert not reads


def test_mirrors_that_do_not_fit_are_tried_again_after_a_time(
    reads: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_mirrors, "_MOST_BYTES", 2 * ROWS.nbytes)
    now = [0.0]
    mirrors = SmallMirrors(clock=lambda: now[0])
    a, b, c = (State(table=replace(Table(), uuid=uuid)) for uuid in "abc")
    assert all(names(mirrors, state) == ["a", "b", None] for state in (a, b, c)), "each is read"
    assert names(mirrors, c) is None
    now[0] = 400
    assert names(mirrors, a) == ["a", "b", None]
    now[0] = 700
    assert names(mirrors, c) == names(mirrors, c) == ["a", "b", None], "b was not used"
    assert [state.table.uuid for state in reads] == ["a", "b", "c", "c"]
