"""Which tables may be read after a rotation of the binlog that was made for another one."""

from dataclasses import replace
from typing import Any

import pytest

from replicator.model.reread import new_request
from replicator.model.table import TableId
from replicator.recovery.reader.commit_fence import Fence, TopicEnd

REQUEST = replace(new_request(TableId("shop", "orders"), "new table"), requested_ms=1000)
END = TopicEnd("shop.shop.orders", "id-1", {0: 7, 1: 9}, 2)
FENCE = Fence(1000, 5, {END.topic: END}, offset=400)


def end_for(
    fence: Fence = FENCE, end: TopicEnd = END, definition: int = 400, server_id: int = 5
) -> TopicEnd | None:
    return fence.end_for(REQUEST, end, definition, server_id)


def test_fence_serves_a_table_that_was_to_be_read_before_it() -> None:
    assert end_for() == END
    assert end_for(end=replace(END, offsets={0: 70, 1: 90})) == END, "later events are applied afterwards"


def test_all_events_of_a_topic_that_is_younger_than_the_fence_are_applied() -> None:
    new = replace(END, topic="shop.shop.new", topic_id="id-2", offsets={0: 3, 1: 0})
    assert end_for(end=new) == replace(new, offsets={0: 0, 1: 0})
    unborn = TopicEnd("shop.shop.unborn", None, {0: 0}, None)
    assert end_for(end=unborn) == unborn


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(
            {"fence": replace(FENCE, began_ms=999)}, id="what the request is for may not be visible"
        ),
        pytest.param({"server_id": 6}, id="another server"),
        pytest.param({"definition": 401}, id="events since the fence may have an earlier definition"),
        pytest.param({"end": replace(END, topic_id="id-2")}, id="the topic was recreated"),
        pytest.param({"end": replace(END, offsets={0: 7, 1: 9, 2: 0})}, id="partitions were added"),
    ],
)
def test_fence_does_not_serve(wrong: dict[str, Any]) -> None:
    assert end_for(**wrong) is None
