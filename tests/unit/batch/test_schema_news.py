"""Which tables have news without events: a later schema version, or rows that the newest one still requires."""

from types import SimpleNamespace
from typing import Any

import pytest

from replicator.batch.plan.segments import has_news
from replicator.lake.ledger import Progress
from replicator.model.commit_marker import CommitMarker
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import LONG
from replicator.schema.evolution.changes import SchemaState
from replicator.schema.history.versions import SchemaHistory, SchemaVersion

ORDERS = TableId("shop", "orders")
MARKER = CommitMarker("shop", 1, 1)


def history(*ats: int) -> SchemaHistory:
    schema = TableSchema((Column("id", LONG),), ("id",))
    return SchemaHistory(tuple(SchemaVersion(at, SourcePosition("b.1", at), 0, schema, {}) for at in ats))


def news(progress: Progress, known: SchemaHistory) -> bool:
    context: Any = SimpleNamespace(
        ledger=SimpleNamespace(progress=lambda _: progress),
        schemas=SimpleNamespace(history=lambda _: known),
    )
    return has_news(context, ORDERS)


def progress(
    at: int | None, *, pending: bool, mirror: CommitMarker | None = MARKER, changelog_at: int | None = 5
) -> Progress:
    mirrored, logged = (None if a is None else SchemaState(a) for a in (at, changelog_at))
    return Progress(mirror, MARKER, True, False, mirrored, logged, has_pending_rows=pending)


@pytest.mark.parametrize("pending", [False, True])
def test_table_at_the_newest_version_has_news_only_while_its_rows_are_pending(pending: bool) -> None:
    assert news(progress(5, pending=pending), history(1, 5)) is pending
    assert news(progress(5, pending=pending), history()) is pending


def test_table_at_an_earlier_version_has_news() -> None:
    assert news(progress(1, pending=False), history(1, 5))


def test_mirror_that_cannot_be_kept_at_a_known_version_has_no_news() -> None:
    """A task would change nothing, and each round would make another one."""
    assert not news(progress(9, pending=True), history(1, 5))
    assert not news(progress(5, pending=True, mirror=None), history(1, 5))
    assert not news(progress(None, pending=True), history(1, 5))
