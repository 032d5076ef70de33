"""By which names a mirror knows the tables of a source that ignores letter case."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from replicator.decode.json.format import JsonFormat
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.lake.ledger import Progress
from replicator.model.commit_marker import CommitMarker
from replicator.model.events import RawRecord
from replicator.model.table import TableId
from replicator.recovery.new_tables import NewTables, present_tables
from replicator.sources.mysql import tables as source_tables
from tests.oracle.events import ColumnSpec, Place, schema_change_event

COLUMNS = [ColumnSpec("id", "bigint", False)]


def tracker(*statements: tuple[str, str]) -> SchemaTracker:
    """Return the definitions of statements, each of a kind about a table."""
    found = SchemaTracker(JsonFormat())
    values = [
        schema_change_event(Place(1, 100 + n), name, COLUMNS, ["id"], kind=kind)
        for n, (kind, name) in enumerate(statements)
    ]
    found.add_schema_changes(RawRecord("shop", 0, n, 0, None, value) for n, value in enumerate(values))
    return found


@pytest.mark.parametrize(
    ("statements", "folds", "wanted"),
    [
        ([("CREATE", "Orders")], True, "Orders"),
        ([("CREATE", "Orders")], False, "orders"),
        ([("CREATE", "orders"), ("CREATE", "Orders")], True, "orders"),
        ([("CREATE", "Orders"), ("DROP", "Orders"), ("CREATE", "ORDERS")], True, "ORDERS"),
        ([("CREATE", "Bills")], True, "orders"),
        ([], True, "orders"),
    ],
)
def test_tables_have_the_names_of_their_topics_if_the_source_ignores_case(
    monkeypatch: pytest.MonkeyPatch, statements: list[tuple[str, str]], folds: bool, wanted: str
) -> None:
    monkeypatch.setattr(source_tables, "included_tables", lambda _config: [TableId("shop", "orders")])
    monkeypatch.setattr(source_tables, "ignores_case", lambda _config: folds)
    context: Any = SimpleNamespace(config=Mock(), schemas=tracker(*statements))
    assert present_tables(context) == ([TableId("shop", wanted)], folds)


@pytest.mark.parametrize("folds", [True, False])
def test_table_whose_definition_comes_later_in_another_case_is_not_read_by_the_sources_name(
    folds: bool,
) -> None:
    context: Any = SimpleNamespace(config=Mock(), schemas=tracker(("CREATE", "Orders")))
    new = NewTables(context)
    new._ignores_case = folds
    assert new.is_respelt(TableId("shop", "orders")) is folds
    assert not new.is_respelt(TableId("shop", "Orders"))
    assert not new.is_respelt(TableId("shop", "bills"))


RENAMED = (("ALTER", "bills", "RENAME TABLE orders TO bills"),)
SWAPPED = tuple(
    ("ALTER", name, "RENAME TABLE orders TO orders_old, bills TO orders") for name in ("orders_old", "orders")
)


@pytest.mark.parametrize(
    ("statements", "in_lake", "new"),
    [
        # The lake's table will be renamed.
        (RENAMED, {"orders"}, set()),
        (RENAMED, {"bills"}, {"orders"}),
        (RENAMED, set(), {"orders", "bills"}),
        # That of `orders` is read again, and keeps its name.
        (SWAPPED, {"orders", "bills"}, {"orders_old"}),
        # It was dropped in the lake: the topic `orders` has events of both tables.
        (SWAPPED, {"bills"}, {"orders", "orders_old"}),
    ],
)
def test_name_is_new_unless_the_lake_has_it_or_a_table_that_will_get_it(
    statements: tuple[tuple[str, str, str], ...], in_lake: set[str], new: set[str]
) -> None:
    created = [("CREATE", name) for name in ("orders", "bills") if statements is SWAPPED or name == "orders"]
    schemas = tracker(*created)
    schemas.add_schema_changes(
        RawRecord(
            "shop",
            0,
            9,
            0,
            None,
            schema_change_event(Place(1, 300), name, COLUMNS, ["id"], kind=kind, ddl=ddl),
        )
        for kind, name, ddl in statements
    )
    marker = CommitMarker("shop", 1, 1, {})

    def progress(table: TableId) -> Progress:
        return Progress(marker if table.name in in_lake else None, None, False)

    context: Any = SimpleNamespace(config=Mock(), schemas=schemas, ledger=Mock(progress=progress))
    found = NewTables(context)
    names = {"orders", "bills", *(name for _, name, _ in statements)}
    assert {name for name in names if found.is_new(TableId("shop", name))} == new


def test_source_is_asked_again_if_that_is_wanted_before_it_has_answered() -> None:
    answers: list[Mock] = []

    def submit(*_work: Any) -> Mock:
        answers.append(Mock())
        answers[-1].exception.return_value = None
        answers[-1].result.return_value = ([TableId("shop", f"t{len(answers)}")], False)
        return answers[-1]

    new = NewTables(SimpleNamespace(config=Mock(reads_new_tables=True)))  # type: ignore[arg-type]
    threads: Any = lambda: Mock(submit=submit)  # noqa: E731
    assert new.step(threads) == []
    new.ask_now()
    assert [new.step(threads), new.must_ask] == [[TableId("shop", "t1")], True]
    assert [new.step(threads), new.must_ask] == [[TableId("shop", "t2")], False]
    assert len(answers) == 2
