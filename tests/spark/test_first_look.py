"""A process that meets a table: what it has to read before it knows the schema of its events, and what it finds."""

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame

from replicator.batch import decode_batch
from replicator.decode.schema_tracker import SchemaTracker
from replicator.runner.scheduler import Scheduler
from tests.oracle.avro import AvroTopics
from tests.oracle.events import ColumnSpec
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import ORDERS
from tests.support.scenario import ID, Scenario, rows

MANY = decode_batch._FIRST_EVENTS * 2

few_or_many = pytest.mark.parametrize("few", [0, 10_000], ids=["by Spark", "by the driver"])


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done with all records of a batch: "decode" and "learn"."""
    done: list[str] = []
    decode, learn = SchemaTracker.decode, SchemaTracker.learn

    def decoding(schemas: SchemaTracker, *args: object, **options: object) -> DataFrame:
        done.append("decode")
        return decode(schemas, *args, **options)  # type: ignore[arg-type]

    def learning(schemas: SchemaTracker, *args: object, **options: object) -> Sequence[object]:
        done.append("learn")
        return learn(schemas, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(SchemaTracker, "decode", decoding)
    monkeypatch.setattr(SchemaTracker, "learn", learning)
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


@few_or_many
@pytest.mark.parametrize("encoding", ["json", "json with schemas", "avro"])
def test_a_batch_is_decoded_once(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch, passes: list[str], few: int, encoding: str
) -> None:
    """In the first process, which has all to learn, as in the next one."""
    monkeypatch.setattr("replicator.batch.prefetch.DRIVER_MAX_EVENTS", few)
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


@few_or_many
def test_a_schema_that_only_later_events_have(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("replicator.batch.prefetch.DRIVER_MAX_EVENTS", few)
    scenario = scenario_of(MANY)
    scenario.define("ALTER TABLE orders ADD n INT", [*scenario.columns, ColumnSpec("n", "int")])
    scenario.insert(id=MANY, price=1.5, n=7)
    lake.write(scenario.records)
    catch_up(lake)
    found = rows(lake)
    assert len(found) == MANY + 1
    assert {r["n"] for r in found if r["id"] != MANY} == {None}
    assert [r["n"] for r in found if r["id"] == MANY] == [7]


@few_or_many
def test_first_events_without_the_key(lake: LakeHarness, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Those of a truncate have none; and no definition is there to tell it."""
    monkeypatch.setattr("replicator.batch.prefetch.DRIVER_MAX_EVENTS", few)
    scenario = Scenario([ID, ColumnSpec("n", "int")], with_schemas=True)
    for _ in range(decode_batch._FIRST_EVENTS):
        scenario.change("t")
    for n in range(3):
        scenario.change("u", before={"id": 1, "n": n}, after={"id": 1, "n": n + 1})
    lake.write([r for r in scenario.records if r.topic == ORDERS])
    catch_up(lake)
    assert rows(lake) == [{"id": 1, "n": 3}]


@few_or_many
@pytest.mark.parametrize("first", [b'{"schema":{"type":"struct"},"payload":{}}', b'{"schema":', b"{}", None])
def test_first_events_without_information_about_the_schema(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch, few: int, first: bytes | None
) -> None:
    monkeypatch.setattr("replicator.batch.prefetch.DRIVER_MAX_EVENTS", few)
    scenario = scenario_of(3)
    strange = [Record(ORDERS, 0, b"?", first)] * decode_batch._FIRST_EVENTS
    lake.write([*strange, *scenario.records])
    mirror = lake.catch_up()
    assert mirror.summary().paused == {}
    assert mirror.summary().quarantined == (0 if first is None else len(strange))
    assert [r["id"] for r in rows(lake)] == [0, 1, 2]


def test_first_events_of_an_unknown_writer(lake: LakeHarness) -> None:
    """Later ones can be read, so it is not the registry that is wrong."""
    lost = [Record(ORDERS, 0, None, b"\0\0\0\3\xe7rest")] * decode_batch._FIRST_EVENTS
    events = [r for r in scenario_of(3).records if r.topic == ORDERS]
    lake.write([*lost, *events], avro=AvroTopics())
    mirror = lake.catch_up()
    assert mirror.summary().paused == {}
    assert mirror.summary().quarantined == len(lost)
    assert [r["id"] for r in rows(lake)] == [0, 1, 2]
