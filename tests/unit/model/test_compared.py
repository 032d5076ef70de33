"""What shows that rows that might differ from the source do not."""

from dataclasses import replace

import pytest

from replicator.model.compared import MAY_DIFFER_KEY, MayDiffer, may_differ_in
from replicator.model.reread import Narrowed, Phase, Request
from replicator.model.table import TableId
from replicator.model.verified import VerifiedTable

TABLE = TableId("shop", "a")
FOUND = MayDiffer("a foreign key", "b.000009", 100, noted_ms=1_000)
EQUAL = VerifiedTable(TABLE, "equal", "b.000010:4", 2_000, 5, 0, offsets={0: 7}, topic_id="id")
DIFFERENT = replace(EQUAL, verdict="different", differing=3)
READ = Request("1", TABLE, "heal", 1_000, Phase.DONE, changed=3)
REPAIRED = replace(READ, requested_ms=2_000, narrowed=Narrowed("id", ()))


@pytest.mark.parametrize(
    ("check", "reread", "settled"),
    [
        (None, None, False),
        (EQUAL, None, True),
        (replace(EQUAL, position="b.000009:100"), None, True),
        (replace(EQUAL, position="b.000009:99"), None, False),
        (replace(EQUAL, position="unknown"), None, False),
        (replace(EQUAL, sampled=True), None, False),
        # It was compared in parts, the first of which may have been earlier.
        (replace(EQUAL, offsets={}), None, False),
        # It has no topic.
        (replace(EQUAL, offsets={}, topic_id=None), None, True),
        (replace(EQUAL, verdict="undecided"), None, False),
        (None, READ, True),
        (None, replace(READ, requested_ms=999), False),
        (None, replace(READ, phase=Phase.FAILED), False),
        (None, REPAIRED, False),
        (DIFFERENT, None, False),
        (DIFFERENT, REPAIRED, True),
        (DIFFERENT, replace(REPAIRED, changed=2), False),
        (DIFFERENT, replace(REPAIRED, requested_ms=1_999), False),
        (replace(DIFFERENT, position="b.000009:99"), REPAIRED, False),
    ],
)
def test_whole_comparison_or_reread_that_came_later_settles_it(
    check: VerifiedTable | None, reread: Request | None, settled: bool
) -> None:
    assert FOUND.is_settled(check, reread) is settled


def test_records_that_cannot_be_read_are_left_out() -> None:
    properties = {
        f"{MAY_DIFFER_KEY}shop.a": FOUND.to_json(),
        f"{MAY_DIFFER_KEY}shop.b": FOUND.to_json().replace('"version": 1', '"version": 2'),
        f"{MAY_DIFFER_KEY}shop.c": "{",
        "replicator.watched": FOUND.to_json(),
    }
    assert may_differ_in(properties) == {"shop.a": FOUND}
