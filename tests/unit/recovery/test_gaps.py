"""Tables that the topics may lack changes of."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from replicator.batch import MirrorContext
from replicator.lake.properties import LEFT_OUT_KEY, REWIND_KEY
from replicator.model.table import TableId
from replicator.recovery.gaps import (
    LEFT_OUT,
    SENT_AGAIN,
    TOPIC_PREFIX_KEY,
    LeftOutTables,
    notice_other_prefix,
)
from replicator.recovery.request import Tables
from tests.support.config import minimal_config

ORDERS = TableId("shop", "orders")


def left_out(properties: dict[str, Any]) -> LeftOutTables:
    lake = SimpleNamespace(
        namespace_properties=lambda _: properties,
        set_namespace_property=lambda _, key, value: properties.update({key: value}),
    )
    return LeftOutTables(cast("MirrorContext", SimpleNamespace(config=minimal_config(), lake=lake)))


def sent_again(phase: str) -> str:
    return json.dumps({"version": 1, "database": "shop", "name": "orders", "phase": phase})


@pytest.mark.parametrize("phase", ["requested", "sending", "done", "failed"])
def test_table_is_read_again_if_an_earlier_version_had_not_sent_its_lost_events(phase: str) -> None:
    properties = {f"{REWIND_KEY}shop.orders": sent_again(phase), f"{REWIND_KEY}shop.broken": "{"}
    tables, lacks = left_out(properties), phase in ("requested", "sending")
    assert tables.returned() == ({ORDERS: SENT_AGAIN} if lacks else {})
    tables.forget(ORDERS)
    assert properties[f"{REWIND_KEY}shop.orders"] == (None if lacks else sent_again(phase))


def test_all_records_of_a_table_are_removed() -> None:
    properties = {
        f"{REWIND_KEY}shop.orders": sent_again("sending"),
        f"{LEFT_OUT_KEY}shop.orders": json.dumps({"database": "shop", "name": "orders", "since_ms": 1}),
        f"{LEFT_OUT_KEY}shop.bills": json.dumps({"database": "shop", "name": "bills", "since_ms": 1}),
    }
    tables = left_out(properties)
    assert tables.returned() == {TableId("shop", "bills"): LEFT_OUT, ORDERS: SENT_AGAIN}
    tables.forget(ORDERS)
    assert [key for key, value in properties.items() if value is not None] == [f"{LEFT_OUT_KEY}shop.bills"]


@pytest.mark.parametrize(("known", "paused"), [(None, []), ("shop", []), ("former", [ORDERS])])
def test_tables_are_paused_if_the_topics_have_another_prefix(
    known: str | None, paused: list[TableId]
) -> None:
    """Except those of other mirrors, and those that the configuration leaves out."""
    properties: dict[str, Any] = {} if known is None else {TOPIC_PREFIX_KEY: known}
    sources = {
        "orders": ("shop.orders", "shop"),
        "bills": ("shop.bills", "other"),
        "logs": ("left.logs", "shop"),
    }

    def load(_namespace: str, name: str) -> Any:
        source, mirror = sources[name]
        return SimpleNamespace(marker=lambda: SimpleNamespace(mirror=mirror), property=lambda _: source)

    lake = SimpleNamespace(
        namespace_properties=lambda _: properties,
        set_namespace_property=lambda _, key, value: properties.update({key: value}),
        tables=lambda _: list(sources),
        load=load,
    )
    config = minimal_config(source={"tables": ["shop.*"]})
    context = SimpleNamespace(config=config, lake=lake, log=SimpleNamespace(topic_prefix="shop"))
    found = []
    tables = SimpleNamespace(pause=lambda table, _cause: found.append(table))
    notice_other_prefix(cast("MirrorContext", context), cast("Tables", tables))
    assert found == paused
    assert properties == {TOPIC_PREFIX_KEY: "shop"}
