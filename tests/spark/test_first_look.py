"""A process that meets a table: what it has to read before it knows the schema of its events, and what it finds."""

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame

from replicator.batch import understand
from replicator.decode.schema_book import SchemaBook
from replicator.mirror import Mirror
from tests.oracle.avro import AvroTopics
from tests.oracle.events import ColumnSpec
from tests.oracle.model import Record
from tests.spark.batches import ORDERS
from tests.spark.conftest import Lab
from tests.spark.stories import ID, Story, rows

MANY = understand._FIRST_EVENTS * 2

few_or_many = pytest.mark.parametrize("few", [0, 10_000], ids=["by Spark", "by the driver"])


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done with all records of a batch: "decode" and "learn"."""
    done: list[str] = []
    decode, learn = SchemaBook.decode, SchemaBook.learn

    def decoding(book: SchemaBook, *args: object, **options: object) -> DataFrame:
        done.append("decode")
        return decode(book, *args, **options)  # type: ignore[arg-type]

    def learning(book: SchemaBook, *args: object, **options: object) -> Sequence[object]:
        done.append("learn")
        return learn(book, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(SchemaBook, "decode", decoding)
    monkeypatch.setattr(SchemaBook, "learn", learning)
    return done


def story_of(count: int, *, with_schemas: bool = True) -> Story:
    story = Story([ID, ColumnSpec("price", "decimal")], with_schemas)
    for number in range(count):
        story.insert(id=number, price=number + 0.5)
    return story


def catch_up(lab: Lab) -> Mirror:
    mirror = lab.catch_up()
    assert (mirror.summary().paused, mirror.summary().quarantined) == ({}, 0)
    return mirror


@few_or_many
@pytest.mark.parametrize("encoding", ["json", "json with schemas", "avro"])
def test_a_batch_is_decoded_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, passes: list[str], few: int, encoding: str
) -> None:
    """In the first process, which has all to learn, as in the next one."""
    monkeypatch.setattr("replicator.batch.fetch.FEW_EVENTS", few)
    records = story_of(MANY, with_schemas=encoding != "json").records
    avro = None
    if encoding == "avro":
        avro, records = AvroTopics(), [r for r in records if r.topic == ORDERS]
    middle = len(records) // 2
    for part in (records[:middle], records[middle:]):
        lab.write(part, avro=avro)
        catch_up(lab)
        assert passes == ["decode"]
        passes.clear()
    assert [(r["id"], str(r["price"])) for r in rows(lab)] == sorted(
        ((n, f"{n}.50") for n in range(MANY)), key=lambda pair: str(pair[0])
    )


@few_or_many
def test_a_schema_that_only_later_events_have(lab: Lab, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr("replicator.batch.fetch.FEW_EVENTS", few)
    story = story_of(MANY)
    story.define("ALTER TABLE orders ADD n INT", [*story.columns, ColumnSpec("n", "int")])
    story.insert(id=MANY, price=1.5, n=7)
    lab.write(story.records)
    catch_up(lab)
    found = rows(lab)
    assert len(found) == MANY + 1
    assert {r["n"] for r in found if r["id"] != MANY} == {None}
    assert [r["n"] for r in found if r["id"] == MANY] == [7]


@few_or_many
def test_first_events_that_do_not_tell_the_key(lab: Lab, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Those of a truncate have none; and no definition is there to tell it."""
    monkeypatch.setattr("replicator.batch.fetch.FEW_EVENTS", few)
    story = Story([ID, ColumnSpec("n", "int")], with_schemas=True)
    for _ in range(understand._FIRST_EVENTS):
        story.change("t")
    for n in range(3):
        story.change("u", before={"id": 1, "n": n}, after={"id": 1, "n": n + 1})
    lab.write([r for r in story.records if r.topic == ORDERS])
    catch_up(lab)
    assert rows(lab) == [{"id": 1, "n": 3}]


@few_or_many
@pytest.mark.parametrize("first", [b'{"schema":{"type":"struct"},"payload":{}}', b'{"schema":', b"{}", None])
def test_first_events_that_tell_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, few: int, first: bytes | None
) -> None:
    monkeypatch.setattr("replicator.batch.fetch.FEW_EVENTS", few)
    story = story_of(3)
    strange = [Record(ORDERS, 0, b"?", first)] * understand._FIRST_EVENTS
    lab.write([*strange, *story.records])
    mirror = lab.catch_up()
    assert mirror.summary().paused == {}
    assert mirror.summary().quarantined == (0 if first is None else len(strange))
    assert [r["id"] for r in rows(lab)] == [0, 1, 2]


def test_first_events_of_an_unknown_writer(lab: Lab) -> None:
    """Later ones can be read, so it is not the registry that is wrong."""
    lost = [Record(ORDERS, 0, None, b"\0\0\0\3\xe7rest")] * understand._FIRST_EVENTS
    events = [r for r in story_of(3).records if r.topic == ORDERS]
    lab.write([*lost, *events], avro=AvroTopics())
    mirror = lab.catch_up()
    assert mirror.summary().paused == {}
    assert mirror.summary().quarantined == len(lost)
    assert [r["id"] for r in rows(lab)] == [0, 1, 2]
