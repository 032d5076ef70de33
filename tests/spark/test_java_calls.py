"""Calls of Java are cheap: its objects are released in bulk, and plain arguments are passed on as they are."""

import gc
from datetime import UTC, datetime
from typing import Any

from replicator.jvm.calls import Conversions, ReleasedObjects
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, event


def test_released_objects_are_forgotten_in_bulk_and_others_are_kept(lake: LakeHarness) -> None:
    gateway: Any = lake.base.sparkContext._gateway
    released: Any = gateway._gateway_client.finalizer_deque
    assert isinstance(released, ReleasedObjects)
    bindings = gateway.java_gateway_server.getGateway().getBindings()
    kept = gateway.jvm.java.util.ArrayList()
    gone = [gateway.jvm.java.util.ArrayList() for _ in range(500)]
    ids = [each._target_id for each in gone]
    assert all(bindings.containsKey(each) for each in ids[:3])
    del gone
    gc.collect()
    released.release()
    assert not any(bindings.containsKey(each) for each in ids)
    kept.add("still there")
    assert list(kept) == ["still there"]


def test_arguments_are_converted_as_before(lake: LakeHarness) -> None:
    gateway: Any = lake.base.sparkContext._gateway
    (conversions,) = gateway._gateway_client.converters
    assert isinstance(conversions, Conversions)
    given = gateway.jvm.java.util.ArrayList()
    for value in ("text", 1, 2.5, True, None, [1, "a"], {"k": 2}, {3}, datetime(2026, 1, 2, tzinfo=UTC)):
        given.add(value)
    shown = "[text, 1, 2.5, true, null, [1, a], {k=2}, [3], 2026-01-02 00:00:00.0]"
    assert given.toString() == shown


def test_commits_on_a_local_disk_wait_for_no_pool(lake: LakeHarness) -> None:
    """Iceberg looks every 10 ms whether a pool has done its part."""
    lake.write([DEFINITION, event("c", 100, after={"id": 1, "name": "a"})])
    mirror = lake.catch_up()
    table = mirror.context.lake.load("shop", "orders")
    assert table is not None
    classes = table.classes
    producer = classes.java_class.forName("org.apache.iceberg.SnapshotProducer")
    append = table.of_few_files(table.java.newAppend())
    for kind, name, of in (
        (producer, "workerPool", append),
        (producer, "writePool", append),
        (classes.java_class.forName("org.apache.iceberg.hadoop.HadoopFileIO"), "executorService", None),
    ):
        field = kind.getDeclaredField(name)
        field.setAccessible(True)
        assert field.get(of).equals(classes.calling_thread)
