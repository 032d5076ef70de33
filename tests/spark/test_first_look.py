"""The first batch of a table in a process: what it reads to find the schema of the events."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from replicator.batch import MirrorContext
from replicator.batch.steps import decode
from replicator.decode.decoder import Decoder
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.runner.build import event_format
from replicator.runner.scheduler import Scheduler
from tests.oracle.avro import AvroTopics
from tests.oracle.events import ColumnSpec
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import ORDERS
from tests.support.scenario import ID, Scenario, rows

MANY = decode._FIRST_EVENTS * 2

on_spark_and_driver = pytest.mark.parametrize(
    "driver_max_events", [0, 10_000], ids=["by Spark", "by the driver"]
)


def counted(method: Callable[..., Any], name: str, done: list[str]) -> Callable[..., Any]:
    """Return a method that records its calls: each is a pass over all records of a batch."""

    def call(*args: Any, **options: Any) -> Any:
        done.append(name)
        return method(*args, **options)

    return call


@pytest.fixture
def passes(lake: LakeHarness, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the passes over all records of a batch, of every mirror of `lake`."""
    done: list[str] = []
    for name in ("decode", "frame"):
        monkeypatch.setattr(Decoder, name, counted(getattr(Decoder, name), "decode", done))

    def counting(context: MirrorContext) -> MirrorContext:
        tracker: Any = SchemaTracker(event_format(context.config, context.log))
        tracker.discovery.learn = counted(tracker.discovery.learn, "learn", done)
        return replace(context, schemas=tracker)

    lake.adapt = counting
    return done


def scenario_of(count: int, *, with_schemas: bool = True) -> Scenario:
    scenario = Scenario([ID, ColumnSpec("price", "decimal")], with_schemas)
    for number in range(count):
        scenario.insert(id=number, price=number + 0.5)
    return scenario


def catch_up(lake: LakeHarness) -> Scheduler:
    mirror = lake.catch_up()
    assert (mirror.summary().paused, mirror.summary().quarantined) == ({}, 0)
    return mirror


@on_spark_and_driver
@pytest.mark.parametrize("encoding", ["json", "json with schemas", "avro"])
def test_batch_is_decoded_once_even_when_its_schema_is_unknown(
    lake: LakeHarness, passes: list[str], driver_max_events: int, encoding: str
) -> None:
    """In the first process, which knows no schema, and in the next one."""
    lake.driver_max_events = driver_max_events
    records = scenario_of(MANY, with_schemas=encoding != "json").records
    avro = None
    if encoding == "avro":
        avro, records = AvroTopics(), [r for r in records if r.topic == ORDERS]
    middle = len(records) // 2
    for part in (records[:middle], records[middle:]):
        lake.write(part, avro=avro)
        catch_up(lake)
        assert passes == ["decode"]
        passes.clear()
    assert [(r["id"], str(r["price"])) for r in rows(lake)] == sorted(
        ((n, f"{n}.50") for n in range(MANY)), key=lambda pair: str(pair[0])
    )


@on_spark_and_driver
@pytest.mark.parametrize("first", [b'{"schema":{"type":"struct"},"payload":{}}', b'{"schema":', b"{}", None])
def test_table_is_mirrored_when_its_first_events_have_no_schema(
    lake: LakeHarness, driver_max_events: int, first: bytes | None
) -> None:
    lake.driver_max_events = driver_max_events
    scenario = scenario_of(3)
    strange = [Record(ORDERS, 0, b"?", first)] * decode._FIRST_EVENTS
    lake.write([*strange, *scenario.records])
    mirror = lake.catch_up()
    assert mirror.summary().paused == {}
    assert mirror.summary().quarantined == (0 if first is None else len(strange))
    assert [r["id"] for r in rows(lake)] == [0, 1, 2]


def test_first_events_are_quarantined_when_their_writer_schema_is_unknown(lake: LakeHarness) -> None:
    """Later events can be read, so the registry is not the cause."""
    lost = [Record(ORDERS, 0, None, b"\0\0\0\3\xe7rest")] * decode._FIRST_EVENTS
    events = [r for r in scenario_of(3).records if r.topic == ORDERS]
    lake.write([*lost, *events], avro=AvroTopics())
    mirror = lake.catch_up()
    assert mirror.summary().paused == {}
    assert mirror.summary().quarantined == len(lost)
    assert [r["id"] for r in rows(lake)] == [0, 1, 2]
