"""Which archives a lake table refuses."""

import pytest

from replicator.model.commit_marker import CommitMarker, PartitionProgress
from replicator.runner.log_check import lost_events

TOPIC = "shop.shop.t"
IMPORT, OTHER, KAFKA = "binlog:1", "binlog:2", "uuid"


def marker(topic_id: str | None, *, events: bool = True) -> CommitMarker:
    progress = {TOPIC: {0: PartitionProgress(5)}} if events else {}
    return CommitMarker("shop", 1, 1, progress, topic_ids={} if topic_id is None else {TOPIC: topic_id})


@pytest.mark.parametrize("known", [None, KAFKA, IMPORT, OTHER])
@pytest.mark.parametrize("given", [None, IMPORT])
def test_an_import_and_another_log_are_not_mixed(known: str | None, given: str | None) -> None:
    found = lost_events(TOPIC, marker(known), {0: 0}, {0: 9}, given, log_grows=False)
    mixed = known != given and (known in (IMPORT, OTHER) or given == IMPORT)
    assert (found is not None) == mixed
    assert found is None or "imported from binary logs" in found.message


def test_a_table_without_events_of_the_topic_accepts_an_import() -> None:
    assert lost_events(TOPIC, marker(KAFKA, events=False), {0: 0}, {0: 9}, IMPORT, log_grows=False) is None
