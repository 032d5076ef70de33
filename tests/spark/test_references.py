"""Java forgets the objects that Python no longer refers to."""

import gc
from typing import Any

from replicator.jvm.references import ReleasedObjects
from tests.support.lake_harness import LakeHarness


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
