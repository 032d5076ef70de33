"""An input is loaded again while a batch is between its commits."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from replicator.config import Config
from replicator.lake.catalog.tables import Lake
from replicator.model.common import now_ms
from replicator.pipelines.inputs.tables import InputKind, InputTable, InputTables
from replicator.pipelines.query.names import TableName

ORDERS = TableName("shop", "orders")


def marked(next_offset: int | None, committed_ms: int = 0) -> Any:
    """Return a table up to an offset of its topic; None for one without a commit."""
    progress = {"shop.orders": {0: SimpleNamespace(next_offset=next_offset)}}
    marker = None if next_offset is None else SimpleNamespace(progress=progress, committed_ms=committed_ms)
    return SimpleNamespace(marker=lambda: marker)


def mirror(rows_to: int | None, changelog_to: int | None, logged_ms: int = 0) -> InputTable:
    return InputTable(ORDERS, InputKind.MIRROR, marked(rows_to), marked(changelog_to, logged_ms))


BETWEEN, SETTLED, STUCK = mirror(5, 7, 10**15), mirror(7, 7), mirror(5, 7, now_ms() - 2_000)


class _Loading(InputTables):
    """Tables that are found in one state after the other."""

    def load(self, name: TableName) -> InputTable | None:
        assert name == ORDERS
        return found.pop(0)


found: list[InputTable] = []


@pytest.fixture
def tables() -> InputTables:
    found.clear()
    return _Loading(cast("Config", None), cast("Lake", None), ())


@pytest.mark.parametrize(
    ("rows_to", "changelog_to", "between"),
    [(5, 7, True), (7, 7, False), (None, 7, True), (None, None, False)],
)
def test_mirror_is_between_commits_if_its_changelog_is_at_other_offsets(
    rows_to: int | None, changelog_to: int | None, between: bool
) -> None:
    assert mirror(rows_to, changelog_to).is_between_commits is between


def test_others_are_never_between_commits() -> None:
    assert not InputTable(ORDERS, InputKind.RESULT, marked(5), marked(7)).is_between_commits
    assert not InputTable(ORDERS, InputKind.MIRROR, marked(5), None).is_between_commits


def test_mirror_is_loaded_again_until_the_batch_has_ended(tables: InputTables) -> None:
    found[:] = [BETWEEN, BETWEEN, SETTLED]

    assert tables.load_settled(ORDERS) is SETTLED


def test_mirror_that_stays_between_commits_is_returned_as_it_is(tables: InputTables) -> None:
    found[:] = [STUCK]

    assert tables.load_settled(ORDERS) is STUCK
