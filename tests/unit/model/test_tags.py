"""Records of tags: their text, their names, and which ones the schedule makes and deletes."""

import json
from dataclasses import replace

import pytest

from replicator.model.binlog import BinlogEnd
from replicator.model.gtid import GtidSet
from replicator.model.tags import (
    TagPoint,
    TagRecord,
    TagState,
    due_tag,
    expired_tags,
    name_problem,
    recorded_tags,
)
from tests.support.lake_schemas import validate, validate_properties

GTIDS = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7,4e11fa47-71ca-11e1-9e33-c80aa9429562:tag:3"
END = BinlogEnd("binlog.000002", 500, GtidSet.parse(GTIDS))
POINT = TagPoint.of(END, 7)
FULL = TagRecord("noon", TagState.COMPLETE, 5, True, True, POINT, 9, ("shop.a",), None)
HOUR = 3_600_000


def scheduled(hour: int, state: TagState = TagState.COMPLETE) -> TagRecord:
    return TagRecord(f"auto-{hour}", state, hour * HOUR, scheduled=True)


@pytest.mark.parametrize(
    "tag", [FULL, TagRecord("a.b-c_1", TagState.REQUESTED, 5), FULL.failed("it is paused " * 99)]
)
def test_record_survives_its_text_and_conforms_to_its_schema(tag: TagRecord) -> None:
    text = tag.to_json()
    validate(json.loads(text), "tag-v1.json")
    validate_properties("namespace", {tag.key: text})
    assert recorded_tags({tag.key: text, "owner": "x"}) == [tag]
    # Catalogs in a database store at most 1,000 characters.
    assert len(text) < 1000


def test_long_sets_and_lists_are_shortened() -> None:
    uuids = [f"{n:08x}-71ca-11e1-9e33-c80aa9429562:1-{n}" for n in range(1, 40)]
    point = TagPoint.of(BinlogEnd("binlog.000002", 500, GtidSet.parse(",".join(uuids))), 7)
    done = replace(FULL, point=point).completed(9, (f"shop.table_number_{n}" for n in range(50)))
    assert point.gtids is None
    assert done.left_out[-1] == f"and {50 - len(done.left_out) + 1} more"
    assert len(done.to_json()) < 1000


def test_record_of_a_newer_version_is_refused() -> None:
    text = json.dumps(json.loads(FULL.to_json()) | {"version": 2})
    with pytest.raises(ValueError, match="version 2"):
        recorded_tags({FULL.key: text})


def test_point_has_the_end_of_the_binlog() -> None:
    assert (POINT.end, str(POINT), POINT.gtids) == (END, "binlog.000002:500", GTIDS)
    assert POINT.position_key == (2 << 40) + 500


@pytest.mark.parametrize("name", ["", "main", "replicator_staging", "-x", "a b", "a/b", "x" * 101, "ä"])
def test_other_names_are_refused(name: str) -> None:
    assert name_problem(name) is not None


def test_scheduled_tag_is_due_after_its_interval() -> None:
    assert due_tag([], None, HOUR) is None
    first = due_tag([], 3600.0, 1_800_000_000_000)
    assert first is not None
    assert (first.name, first.scheduled, first.state) == ("auto-20270115T080000Z", True, TagState.REQUESTED)
    known = [scheduled(1), TagRecord("mine", TagState.COMPLETE, 3 * HOUR)]
    assert due_tag(known, 3600.0, 2 * HOUR - 1) is None
    assert due_tag(known, 3600.0, 2 * HOUR) is not None
    assert due_tag([scheduled(1, TagState.STARTED)], 3600.0, 9 * HOUR) is None
    assert due_tag([scheduled(1, TagState.FAILED)], 3600.0, 2 * HOUR) is not None


def test_oldest_scheduled_tags_and_old_failures_expire() -> None:
    failed = [scheduled(4, TagState.FAILED), scheduled(9, TagState.FAILED)]
    mine = TagRecord("mine", TagState.COMPLETE, 0)
    tags = [mine, *map(scheduled, (1, 2, 3, 5)), *failed, scheduled(6, TagState.STARTED)]
    assert [tag.name for tag in expired_tags(tags, 2)] == ["auto-1", "auto-2", "auto-4"]
    assert expired_tags([mine, scheduled(1), failed[1]], 1) == []
