"""The properties of lake tables that other engines read, and commits of tables without changes."""

import json
from typing import Any

from tests.oracle.events import ColumnSpec, Place, change_event, key_of, schema_change_event
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.lake_schemas import validate_lake
from tests.support.orders_table import DEFINITION, ORDERS, created

LOG = "shop.shop.log"
LOG_COLUMNS = (ColumnSpec("id", "bigint", False), ColumnSpec("name", "varchar"))
LOG_DEFINITION = Record(
    "shop", 0, None, schema_change_event(Place(1, 5), "log", LOG_COLUMNS, ["id"], kind="CREATE")
)
TABLES = [(namespace, name) for namespace in ("shop", "shop_changes") for name in ("orders", "log")]


def logged(number: int) -> Record:
    row = {"id": number, "name": "line"}
    return Record(LOG, 0, key_of(row, ["id"]), change_event("c", Place(1, 500 + number), "log", after=row))


def properties(lake: LakeHarness, namespace: str, name: str = "orders") -> dict[str, str]:
    with lake.catalog() as catalog:
        return catalog.load_table((namespace, name)).properties


def with_gtid(record: Record, gtid: str | None) -> Record:
    value: dict[str, Any] = json.loads(record.value or b"{}")
    value["source"]["gtid"] = gtid
    return Record(record.topic, record.partition, record.key, json.dumps(value).encode())


def test_position_gtid_and_watermark_are_properties_of_the_newest_commit(lake: LakeHarness) -> None:
    gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:17"
    records = [with_gtid(created(1), gtid), created(2)]
    lake.write([DEFINITION, *records])
    mirror = lake.mirror()
    for end, position, expected in ((1, "101", gtid), (2, "102", None)):
        mirror.advance({ORDERS: {0: end}})
        source = json.loads(records[end - 1].value or b"{}")["source"]
        for namespace in ("shop", "shop_changes"):
            found = properties(lake, namespace)
            assert found["replicator.position"] == f"{source['file']}:{position}"
            assert found.get("replicator.gtid") == expected
            assert found["replicator.watermark-ms"] == str(source["ts_ms"])
            assert json.loads(found["replicator.marker"])["watermark_ms"] == source["ts_ms"]
    with lake.catalog() as catalog:
        assert validate_lake(catalog, "shop") == 2
        # One metadata file for the creation of the table, and one for each commit.
        assert catalog.load_table(("shop", "orders")).metadata_location.rpartition("/")[2][:5] == "00002"


def test_table_without_changes_makes_no_commit(lake: LakeHarness) -> None:
    lake.write([DEFINITION, LOG_DEFINITION, created(1), *(logged(number) for number in range(5))])
    mirror = lake.mirror()
    mirror.advance({ORDERS: {0: 1}, LOG: {0: 1}})

    def commits() -> dict[tuple[str, str], str]:
        with lake.catalog() as catalog:
            return {name: catalog.load_table(name).metadata_location for name in TABLES}

    before = commits()
    for end in range(2, 6):
        mirror.advance({ORDERS: {0: 1}, LOG: {0: end}})
    after = commits()
    assert {name for name in TABLES if before[name] != after[name]} == {
        ("shop", "log"),
        ("shop_changes", "log"),
    }
    # Neither does a new process, or a batch without any events.
    mirror = lake.mirror()
    assert mirror.advance(mirror.context.log.offsets()[1]) is None
    assert commits() == after
