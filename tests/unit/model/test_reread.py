"""What is recorded of re-reads."""

import json
from dataclasses import replace

from replicator.model.reread import (
    REREAD_KEY,
    KeySpan,
    Narrowed,
    Request,
    StagingState,
    new_request,
    requests_in,
)
from replicator.model.table import TableId

ORDERS = TableId("shop", "orders")


def test_requests_of_earlier_versions_are_read() -> None:
    request = new_request(ORDERS, "heal", narrowed=Narrowed("id", (KeySpan(1, 5, 3),)))
    value = json.loads(request.to_json())
    del value["narrowed"]["width"]
    assert Request.from_json(json.dumps(value)) == request
    del value["narrowed"], value["max_rows"]
    assert Request.from_json(json.dumps(value)) == replace(request, narrowed=None)


def test_request_fits_into_a_property_of_any_catalog() -> None:
    request = replace(new_request(ORDERS, "r" * 5_000), problem="p" * 5_000)
    assert len(request.to_json()) < 1_000


def test_requests_that_this_version_cannot_read_are_left_out() -> None:
    known = new_request(ORDERS, "heal")
    properties = {
        f"{REREAD_KEY}shop.orders": known.to_json(),
        f"{REREAD_KEY}shop.later": '{"version": 2}',
        f"{REREAD_KEY}shop.broken": "{",
        "owner": "x",
    }
    assert requests_in(properties) == [known]


def test_staging_state_advances_by_rows_and_key() -> None:
    state = StagingState("1a", "id", ("9",)).advanced(("5",), 10).advanced(("9",), 2)
    assert (state.after, state.rows) == (("9",), 12)
