"""Requests of tags, in lakes that PyIceberg wrote; no Java is started."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from replicator.config import Config
from replicator.errors import CheckFailed, UsageError
from replicator.lake.properties import PAUSED_KEY
from replicator.model.commit_marker import MARKER_KEY, CommitMarker, PartitionProgress
from replicator.model.common import now_ms
from replicator.model.tags import TagPoint, TagRecord, TagState
from replicator.operations.status.read import read_status
from replicator.operations.tag.delete import delete_tag
from replicator.operations.tag.request import await_tag, list_tags, request_tag
from replicator.runner.lock import only_one
from tests.support.config import minimal_config

KAFKA = {"kind": "kafka", "bootstrap_servers": "127.0.0.1:1", "topic_prefix": "p"}
SOURCE = {"url": "mysql://u@127.0.0.1:1/shop", "tables": ["shop.*"], "exclude": ["shop.out"]}


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    return minimal_config(tmp_path, source=SOURCE, log=KAFKA | {"connect_url": "http://127.0.0.1:1"})


@pytest.fixture
def orders(lake: SqlCatalog) -> SqlCatalog:
    """Add the mirror and the changelog of shop.orders."""
    rows = pa.table({"id": [1]})
    marker = CommitMarker("shop", 1, 1, {"p.shop.orders": {0: PartitionProgress(1)}}, None, None, 1)
    for namespace in ("shop", "shop_changes"):
        table = lake.create_table(
            (namespace, "orders"), rows.schema, properties={MARKER_KEY: marker.to_json()}
        )
        table.append(rows)
    return lake


def record(catalog: SqlCatalog, tag: TagRecord) -> None:
    catalog.update_namespace_properties("shop_ops", updates={tag.key: tag.to_json()})


def mark(catalog: SqlCatalog, namespace: str, name: str) -> None:
    """Tag a table as the mirror does."""
    table = catalog.load_table((namespace, "orders"))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_tag(snapshot.snapshot_id, name).commit()


def test_request_is_recorded_and_waits_for_the_mirror(settings: Config, orders: SqlCatalog) -> None:
    request_tag(settings, "noon")
    found = await_tag(settings, "noon", 0)
    assert found is not None
    assert (found.state, found.position, found.tables) == ("requested", None, ())
    complete = TagRecord(
        "noon", TagState.COMPLETE, 1, point=TagPoint("binlog.000001", 9, None, 2), completed_ms=3
    )
    mark(orders, "shop", "noon")
    record(orders, complete)
    found = await_tag(settings, "noon", 60)
    assert found is not None
    assert (found.state, found.position, found.tables) == ("complete", "binlog.000001:9", ("shop.orders",))
    assert list_tags(settings) == read_status(settings).tags == (found,)
    orders.update_namespace_properties("shop_ops", removals={complete.key})
    assert await_tag(settings, "noon", 60) is None


def test_progress_shows_how_many_tables_are_tagged(settings: Config, orders: SqlCatalog) -> None:
    started = TagRecord("noon", TagState.STARTED, now_ms(), point=TagPoint("binlog.000001", 9, None, 2))
    record(orders, started)
    shown: list[tuple[str, int, int]] = []

    def show(text: str, done: int, total: int) -> None:
        shown.append((text, done, total))
        record(orders, started.failed("it is paused"))

    found = await_tag(settings, "noon", 60, show)
    assert found is not None
    assert (found.state, found.reason) == ("failed", "it is paused")
    assert shown == [("tagging at binlog.000001:9", 0, 1)]


@pytest.mark.parametrize("state", [s for s in TagState if s is not TagState.FAILED])
def test_name_of_another_tag_is_refused(settings: Config, orders: SqlCatalog, state: TagState) -> None:
    record(orders, TagRecord("noon", state, 1))
    with pytest.raises(UsageError, match=f"exists already, and is {state}"):
        request_tag(settings, "noon")


def test_request_is_refused_when_a_table_is_paused(settings: Config, orders: SqlCatalog) -> None:
    pause = json.dumps({"reason": "no key", "hint": None, "since_ms": 1})
    orders.update_namespace_properties(
        "shop_ops", updates={PAUSED_KEY + "shop.orders": pause, PAUSED_KEY + "shop.out": pause}
    )
    with pytest.raises(CheckFailed, match="is paused: no key"):
        request_tag(settings, "noon")
    request_tag(settings, "noon", skip_paused=True)
    assert [tag.state for tag in list_tags(settings)] == ["requested"]


@pytest.mark.parametrize("name", ["main", "a b"])
def test_request_needs_a_name(settings: Config, orders: SqlCatalog, name: str) -> None:
    with pytest.raises(UsageError):
        request_tag(settings, name)
    assert list_tags(settings) == ()


def test_running_mirror_is_left_to_delete_the_tag(settings: Config, orders: SqlCatalog) -> None:
    record(orders, TagRecord("noon", TagState.COMPLETE, 1))
    shown: list[str] = []

    def show(text: str, _done: int, _total: int) -> None:
        assert [tag.state for tag in list_tags(settings)] == ["deleting"]
        shown.append(text)
        orders.update_namespace_properties("shop_ops", removals={"replicator.tag.noon"})

    with only_one(settings):
        assert delete_tag(settings, "noon", 60, show)
    assert shown == ["waiting for the mirror"]
    with pytest.raises(UsageError, match="no tag noon"):
        delete_tag(settings, "noon", 0)
