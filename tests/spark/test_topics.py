"""Topics that are deleted and made anew, or that lose their end, and events of compressed transactions."""

import shutil
from unittest.mock import patch

import pytest

from replicator.mirror import Mirror
from replicator.source.archive import ArchiveChangeLog
from tests.spark.batches import DEFINITION, ORDERS, created, event
from tests.spark.conftest import Lab
from tests.spark.test_snapshots import ids, read


@pytest.fixture
def topic_id(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The id of every topic, as its only item."""
    found = ["first"]
    monkeypatch.setattr(ArchiveChangeLog, "topic_id", lambda *_: found[0])
    monkeypatch.setattr(ArchiveChangeLog, "grows", True)
    return found


def made_anew(lab: Lab, topic_id: list[str]) -> None:
    shutil.rmtree(lab.folder / "archive")
    topic_id[0] = "second"


def test_a_topic_made_anew_that_begins_with_a_snapshot_is_a_new_epoch(lab: Lab, topic_id: list[str]) -> None:
    lab.write([DEFINITION, created(1), created(2), created(3)])
    lab.catch_up()
    made_anew(lab, topic_id)
    lab.write(
        [
            DEFINITION,
            read(1, 200, "first"),
            read(4, 200, "last"),
            event("c", 300, after={"id": 5, "name": "x"}),
        ]
    )
    mirror = lab.mirror()
    mirror.advance({ORDERS: {0: 1}})
    assert ids(lab) == [1, 2, 3]
    mirror = lab.catch_up()
    assert mirror.summary().paused == {}
    assert ids(lab) == [1, 4, 5]
    assert len(lab.rows("orders", "shop_changes")) == 6
    lab.write([event("d", 400, before={"id": 5, "name": "x"})])
    lab.catch_up()
    assert ids(lab) == [1, 4]


@pytest.mark.parametrize("more", [0, 5])
def test_a_topic_made_anew_that_begins_with_changes_pauses_its_table(
    lab: Lab, topic_id: list[str], more: int
) -> None:
    lab.write([DEFINITION, created(1), created(2)])
    lab.catch_up()
    made_anew(lab, topic_id)
    lab.write([DEFINITION, created(7)])
    lab.write([created(10 + n) for n in range(more)])
    for _ in range(2):
        mirror: Mirror = lab.catch_up()
        (reason,) = mirror.summary().paused.values()
        assert "does not begin with a snapshot" in reason
        assert ids(lab) == [1, 2]


def test_a_topic_that_lost_its_end_pauses_its_table(lab: Lab, topic_id: list[str]) -> None:
    lab.write([DEFINITION, created(1), created(2), created(3)])
    lab.catch_up()
    shutil.rmtree(lab.folder / "archive")
    lab.write([DEFINITION, created(1)])
    (reason,) = lab.catch_up().summary().paused.values()
    assert "has lost its newest events" in reason


@pytest.mark.parametrize("few", [0, 10_000])
def test_statements_of_a_compressed_transaction_share_a_place(lab: Lab, few: int) -> None:
    row = {"id": 1, "name": "a"}
    changed = {"id": 1, "name": "b"}
    transaction = [
        event("c", 100, after=row),
        event("c", 100, after={"id": 2, "name": "x"}),
        event("c", 100, after={"id": 3, "name": "x"}),
        event("u", 100, before=row, after=changed),
        event("d", 100, before={"id": 2, "name": "x"}),
    ]
    with patch("replicator.batch.fetch.FEW_EVENTS", few):
        lab.write([DEFINITION, *transaction])
        mirror = lab.mirror()
        mirror.advance({ORDERS: {0: 2}})
        mirror.advance({ORDERS: {0: 5}})
        assert [(r["id"], r["name"]) for r in sorted(lab.rows("orders"), key=lambda r: r["id"])] == [
            (1, "b"),
            (3, "x"),
        ]
        # A connector that starts again sends the end of it once more, or all.
        lab.write([*transaction[3:], event("m", 105), *transaction, created(9)])
        lab.catch_up()
    assert ids(lab) == [1, 3, 9]
    assert len(lab.rows("orders", "shop_changes")) == 7
    assert lab.mirror().engine.ledger.progress(lab.mirror().tables.of(ORDERS)).mirror is not None
