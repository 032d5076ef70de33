"""Flattened events in every encoding: applied if they have the required fields, quarantined otherwise."""

import json
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest

from replicator.model.events import SOURCE
from tests.oracle.avro import AvroTopics
from tests.oracle.events import ColumnSpec, Place, key_of, schema_change_event, source_block
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, ORDERS

METADATA_FIELDS = {
    "__op": "string",
    "__source_file": "string",
    "__source_pos": "int64",
    "__source_row": "int32",
    "__source_ts_ms": "int64",
    "__source_server_id": "int64",
    "__source_gtid": "string",
    "__source_snapshot": "string",
    "__deleted": "string",
}
LEAST = ("__source_gtid", "__source_snapshot")
"""Fields that may be missing."""
ROW_FIELDS = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "name"},
]


def flat(
    op: str, pos: int, row: Mapping[str, Any], *, encoding: str, without: Collection[str] = LEAST
) -> Record:
    """Return a change as ExtractNewRecordState writes it, without the fields in `without`."""
    source = source_block(Place(1, pos), "shop", "orders")
    metadata = {"__op": op} | {f"__source_{name}": source[name] for name in SOURCE}
    metadata["__deleted"] = "true" if op == "d" else "false"
    value = json.dumps({**row, **{name: v for name, v in metadata.items() if name not in without}}).encode()
    key = key_of(row, ["id"])
    if encoding != "json":
        fields = [
            {"type": kind, "optional": True, "field": name}
            for name, kind in METADATA_FIELDS.items()
            if name not in without
        ]
        value = wrapped({"fields": [*ROW_FIELDS, *fields], "name": f"{ORDERS}.Value"}, value)
        key = wrapped({"fields": ROW_FIELDS[:1], "name": f"{ORDERS}.Key"}, key)
    return Record(ORDERS, 0, key, value)


def wrapped(schema: Mapping[str, Any], payload: bytes) -> bytes:
    text = json.dumps({"type": "struct", "optional": False, **schema}, separators=(",", ":"))
    return b'{"schema":' + text.encode() + b',"payload":' + payload + b"}"


def write(lake: LakeHarness, events: list[Record], encoding: str) -> None:
    definitions = [DEFINITION] if encoding == "json" else []
    lake.write([*definitions, *events], avro=AvroTopics() if encoding == "avro" else None)


def config(lake: LakeHarness) -> Any:
    return lake.config(log={"kind": "archive", "path": "archive", "flattened": True})


@pytest.mark.parametrize("without", [(), LEAST], ids=["all", "least"])
@pytest.mark.parametrize("encoding", ["json", "json-schemas", "avro"])
def test_flattened_events_insert_update_and_delete_rows(
    lake: LakeHarness, encoding: str, without: Collection[str]
) -> None:
    events = [
        flat("r", 50, {"id": 1, "name": "a"}, encoding=encoding, without=without),
        flat("c", 100, {"id": 2, "name": "b"}, encoding=encoding, without=without),
        flat("u", 101, {"id": 1, "name": None}, encoding=encoding, without=without),
        flat("d", 102, {"id": 2, "name": "b"}, encoding=encoding, without=without),
        # Sent again after a restart.
        flat("c", 100, {"id": 2, "name": "b"}, encoding=encoding, without=without),
    ]
    write(lake, events, encoding)
    mirror = lake.mirror(config(lake))
    mirror.advance({ORDERS: {0: 2}})
    assert len(lake.rows("orders")) == 2
    mirror.advance({ORDERS: {0: 5}})
    assert mirror.summary().paused == {}
    assert mirror.summary().quarantined == 0
    assert mirror.summary().rows == {"INSERT": 2, "UPDATE_AFTER": 1, "DELETE": 1}
    assert lake.rows("orders") == [{"id": 1, "name": None}]
    changes = sorted(lake.rows("orders", "shop_changes"), key=lambda r: r["_change"]["offset"])
    assert [(c["_change"]["kind"], c["id"], c["name"]) for c in changes] == [
        ("INSERT", 1, "a"),
        ("INSERT", 2, "b"),
        ("UPDATE_AFTER", 1, None),
        ("DELETE", 2, "b"),
    ]
    assert (changes[2]["_change"]["file"], changes[2]["_change"]["pos"]) == ("mysql-bin.000001", 101)


@pytest.mark.parametrize(
    "prices",
    [(1.25, None, -3), ("fQ==", None, "/tQ="), (None, None, 1.25)],
    ids=["numbers", "base64", "late"],
)
def test_decimals_of_flattened_events_are_read_as_numbers_or_base64(
    lake: LakeHarness, prices: Sequence[float | str | None]
) -> None:
    columns = [ColumnSpec("id", "bigint", False), ColumnSpec("price", "decimal")]
    definition = schema_change_event(Place(1, 4), "orders", columns, ["id"], kind="CREATE")
    events = [
        flat("c", 100 + i, {"id": i, "price": price}, encoding="json") for i, price in enumerate(prices)
    ]
    lake.write([Record("shop", 0, None, definition), *events])
    mirror = lake.catch_up(config(lake))
    assert mirror.summary().quarantined == 0
    wanted = [{"fQ==": "1.25", "/tQ=": "-3"}.get(str(p), p) for p in prices]
    found = sorted(lake.rows("orders"), key=lambda r: int(r["id"]))
    assert [r["price"] for r in found] == [None if p is None else Decimal(str(p)) for p in wanted]


@pytest.mark.parametrize("encoding", ["json", "json-schemas", "avro"])
@pytest.mark.parametrize(
    ("without", "reason"),
    [
        ("__op", "no __op in a flattened event"),
        ("__deleted", "no __deleted in a flattened event: deletes would be lost"),
        ("__source_pos", "no position in a flattened event"),
    ],
)
def test_flattened_events_without_required_fields_are_quarantined(
    lake: LakeHarness, encoding: str, without: str, reason: str
) -> None:
    bad = flat("c", 100, {"id": 1, "name": "a"}, encoding=encoding, without=(*LEAST, without))
    good = flat("c", 101, {"id": 2, "name": "b"}, encoding=encoding)
    write(lake, [bad, good], encoding)
    lake.catch_up(config(lake))
    assert lake.rows("orders") == [{"id": 2, "name": "b"}]
    (found,) = lake.rows("quarantine", "shop_ops")
    assert found["reason"].startswith(reason)
