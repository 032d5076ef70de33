"""Definitions that differ from the source: confirmed by a second reading, repaired once, and told."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from replicator.batch import MirrorContext
from replicator.errors import DefinitionUnclear, DefinitionWrong, ReplicatorError, SourceUnavailable
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.compared import COMPARED_DEFINITIONS_KEY, ComparedDefinitions, compared_definitions_in
from replicator.model.gtid import GtidSet
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import INT
from replicator.recovery.request import Requests
from replicator.schema.history.comparison import SourceColumn, SourceDefinition
from replicator.schema.history.versions import SchemaHistory, SchemaVersion, TableRemoval
from replicator.schema.types.native import NativeType
from replicator.watch import definition_checks
from replicator.watch.definition_checks import DefinitionChecks, Reading

ORIGIN = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
A, B = TableId("shop", "a"), TableId("shop", "b")


def source(*names: str) -> SourceDefinition:
    return SourceDefinition(tuple(SourceColumn(n, NativeType("INT"), Column(n, INT)) for n in names))


def version(at: int, *names: str) -> SchemaVersion:
    schema = TableSchema(tuple(Column(n, INT) for n in names))
    return SchemaVersion(
        at, SourcePosition("b.000001", at), at, schema, {}, source_types=dict.fromkeys(names, "INT")
    )


class Harness:
    """Checks of two tables, and what they did: `done` has the rebuilds and pauses in their order."""

    def __init__(self, *, possible: bool = True) -> None:
        self.histories = {A: SchemaHistory((version(1, "x", "y"),)), B: SchemaHistory((version(1, "x"),))}
        self.done: list[str | tuple[TableId, ReplicatorError]] = []
        self.is_possible, self.is_busy = possible, False
        self.properties: dict[str, str] = {}
        self.paused: dict[TableId, str] = {}
        self.statements = 0
        self.present, self.mirrored = [A, B], {A, B}
        lake = SimpleNamespace(
            set_namespace_property=lambda _, key, value: self.properties.update({key: value})
        )
        schemas = SimpleNamespace(
            revision=1, history=lambda table: self.histories[table], spelling_of=lambda table: table
        )
        config = SimpleNamespace(
            lake=SimpleNamespace(ops_namespace="shop_ops"),
            source=None,
            log=None,
            includes=lambda name: name != "shop.excluded",
        )
        ledger = SimpleNamespace(
            tables=self.histories.keys(),
            progress=lambda table: SimpleNamespace(mirror=1 if table in self.mirrored else None),
        )
        context = SimpleNamespace(lake=lake, schemas=schemas, config=config, ledger=ledger)
        requests = SimpleNamespace(pause=self.pause, paused=self.paused, begun=0, connector=self)
        self.checks = DefinitionChecks(
            cast("MirrorContext", context), cast("Requests", requests), lambda: self.statements
        )

    def pause(self, table: TableId, cause: ReplicatorError) -> None:
        self.paused[table] = cause.message
        self.done.append((table, cause))

    def rebuild_history(self, reason: str) -> None:
        self.done.append(reason)

    def compare(self, a: SourceDefinition, *, must_know: bool = False) -> None:
        """Compare one reading."""
        self.compare_reading(Reading({A: a, B: source("x")}, self.present, must_know))

    def compare_reading(self, reading: Reading) -> None:
        self.checks.give(reading)
        assert self.checks.is_behind
        self.checks.step()
        self.checks.step()

    @property
    def causes(self) -> list[tuple[TableId, type[ReplicatorError]]]:
        return [(found[0], type(found[1])) for found in self.done if not isinstance(found, str)]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_nothing_is_compared_before_the_schema_topic_was_read_once_more(harness: Harness) -> None:
    harness.checks.give(Reading({A: source("y", "x")}, [A]))
    harness.checks.step()
    assert (
        COMPARED_DEFINITIONS_KEY not in harness.properties
        or json.loads(harness.properties[COMPARED_DEFINITIONS_KEY])["at_ms"] is None
    )


def test_a_difference_counts_the_second_time_and_the_connector_is_repaired_before_the_pause(
    harness: Harness,
) -> None:
    harness.compare(source("y", "x"))
    assert not harness.done
    harness.compare(source("y", "x"))
    assert str(harness.done[0]).startswith(
        "its definition of shop.a is not the source's: its columns are (y, x)"
    )
    assert harness.causes == [(A, DefinitionWrong)]


def test_a_difference_that_a_later_statement_explains_does_not_count(harness: Harness) -> None:
    harness.compare(source("x", "y", "z"))
    harness.histories[A] = SchemaHistory((version(1, "x", "y"), version(2, "x", "y", "z")))
    harness.compare(source("x", "y", "z"))
    harness.compare(source("x", "y", "z"))
    assert not harness.done


def test_a_statement_that_the_source_has_not_executed_is_not_compared(harness: Harness) -> None:
    """The connector was moved to a replica that was promoted, and `source.url` still names the server before."""
    altered = version(2, "x", "y", "z")
    altered = replace(altered, position=replace(altered.position, gtid=f"{ORIGIN}:7"))
    harness.histories[A] = SchemaHistory((version(1, "x", "y"), altered))
    former = Reading({A: source("x", "y"), B: source("x")}, [A, B], executed=GtidSet.parse(f"{ORIGIN}:1-6"))
    without = replace(former, definitions={B: source("x")}, tables=[B])
    for reading in (former, former, without, without):
        harness.compare_reading(reading)
    assert not harness.done
    problem = json.loads(harness.properties[COMPARED_DEFINITIONS_KEY])["problem"]
    assert problem == "the source has not executed the newest statement of shop.a that the connector has read"
    for _ in range(2):
        harness.compare_reading(replace(former, executed=GtidSet.parse(f"{ORIGIN}:1-7")))
    assert harness.causes == [(A, DefinitionWrong)]
    assert json.loads(harness.properties[COMPARED_DEFINITIONS_KEY])["problem"] is None


def test_the_same_difference_after_the_repair_pauses_without_another_repair(harness: Harness) -> None:
    for _ in range(2):
        harness.compare(source("y", "x"))
    harness.paused.clear()
    for _ in range(3):
        harness.compare(source("y", "x"))
    assert [found for found in harness.done if isinstance(found, str)] == [harness.done[0]]
    assert harness.causes == [(A, DefinitionWrong), (A, DefinitionUnclear)]
    assert "also after it has read all definitions again" in harness.paused[A]


def test_nothing_is_concluded_while_the_connector_reads_the_definitions(harness: Harness) -> None:
    harness.compare(source("y", "x"))
    harness.is_busy = True
    harness.compare(source("y", "x"))
    assert not harness.done


def test_a_connector_that_cannot_be_told_pauses_the_table_with_the_step(harness: Harness) -> None:
    harness = Harness(possible=False)
    for _ in range(3):
        harness.compare(source("y", "x"))
    assert harness.causes == [(A, DefinitionUnclear)]
    cause = next(found[1] for found in harness.done if not isinstance(found, str))
    assert (
        cause.hint == "let the connector read them (snapshot.mode=recovery); then run: replicator heal shop.a"
    )


@pytest.mark.parametrize(
    "history", [SchemaHistory(), SchemaHistory((replace(version(1, "x"), declared=False),))]
)
def test_a_table_without_a_declared_version_is_not_compared(harness: Harness, history: SchemaHistory) -> None:
    harness.histories[A] = history
    for _ in range(2):
        harness.compare(source("y", "x"))
    assert not harness.done


GIVEN = replace(version(1, "x"), position=SourcePosition("b.000000", 0))
DROPPED = SchemaHistory((version(1, "x"),), TableRemoval(2, SourcePosition("b.000001", 2), 2, None))


@pytest.mark.parametrize("history", [SchemaHistory(), SchemaHistory((GIVEN,)), DROPPED])
def test_a_table_that_the_connector_should_know_and_does_not_is_a_difference(
    harness: Harness, history: SchemaHistory
) -> None:
    harness.histories[A] = history
    for _ in range(2):
        harness.compare(source("x"))
    assert not harness.done
    for _ in range(2):
        harness.compare(source("x"), must_know=True)
    assert harness.done[0] == "its definition of shop.a is not the source's: it has none"
    assert harness.causes == [(A, DefinitionWrong)]


GONE, EXCLUDED = TableId("shop", "gone"), TableId("shop", "excluded")


def test_a_table_that_the_source_has_no_more_although_no_statement_told_it_is_paused(
    harness: Harness,
) -> None:
    harness.histories[GONE] = SchemaHistory((version(1, "x"),))
    harness.mirrored.add(GONE)
    harness.compare(source("x", "y"))
    assert not harness.done
    for _ in range(2):
        harness.compare(source("x", "y"))
    assert harness.causes == [(GONE, DefinitionWrong)]
    cause = harness.done[0][1]
    assert isinstance(cause, ReplicatorError)
    assert cause.hint == "stop the mirror, then run: replicator drop shop.gone"


@pytest.mark.parametrize(
    ("table", "history"),
    [
        (GONE, DROPPED),
        (GONE, SchemaHistory()),
        (EXCLUDED, SchemaHistory((version(1, "x"),))),
        (TableId("shop", "not_in_lake"), SchemaHistory((version(1, "x"),))),
        (TableId("shop", "B"), SchemaHistory((version(1, "x"),))),
    ],
    ids=["dropped", "unknown", "excluded", "not in the lake", "other letter case"],
)
def test_a_table_is_not_missed_that_the_source_need_not_have(
    harness: Harness, table: TableId, history: SchemaHistory
) -> None:
    harness.histories[table] = history
    harness.mirrored |= {table} - {TableId("shop", "not_in_lake")}
    for _ in range(3):
        harness.compare(source("x", "y"))
    assert not harness.done


def test_a_table_that_another_ones_repair_corrected_is_read_again_once(harness: Harness) -> None:
    harness.compare(source("x", "y"))
    swapped = replace(version(2, "y", "x"), recovered=True)
    harness.histories[A] = SchemaHistory((version(1, "x", "y"), swapped))
    for _ in range(2):
        harness.compare(source("y", "x"))
        harness.paused.clear()
    assert harness.causes == [(A, DefinitionWrong)]


def test_a_table_that_was_repaired_is_not_read_twice(harness: Harness) -> None:
    for _ in range(2):
        harness.compare(source("y", "x"))
    harness.paused.clear()
    swapped = replace(version(2, "y", "x"), recovered=True)
    harness.histories[A] = SchemaHistory((version(1, "x", "y"), swapped))
    harness.compare(source("y", "x"))
    assert harness.causes == [(A, DefinitionWrong)]


@pytest.mark.parametrize("recovered", [True, False])
def test_a_version_that_a_statement_or_the_first_snapshot_made_reads_nothing_again(
    harness: Harness, *, recovered: bool
) -> None:
    newer = replace(version(2, "y", "x"), recovered=recovered)
    harness.histories[A] = SchemaHistory((version(1, "x", "y"), newer))
    if not recovered:
        harness.compare(source("y", "x"))
    harness.compare(source("y", "x"))
    assert not harness.done


@pytest.mark.parametrize(
    "text", ["{}", "[]", "no JSON", '{"at_ms": "x", "problem": null}', '{"at_ms": 1, "problem": 2}']
)
def test_an_unknown_record_is_none(text: str) -> None:
    assert compared_definitions_in({COMPARED_DEFINITIONS_KEY: text}) is None
    assert compared_definitions_in({}) is None


END = BinlogEnd("b.000001", 100)


class Source:
    """What the thread of the checks sees: a source whose connector has read up to `offset`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failure: Exception | None = None
        self.offset: ConnectorOffset | None = ConnectorOffset("b.000001", 100)
        self.reads = 0
        for name in ("_POLL_S", "_RETRY_S"):
            monkeypatch.setattr(definition_checks, name, 0.01)
        monkeypatch.setattr(definition_checks, "_SHARE", 0)
        monkeypatch.setattr(definition_checks, "connect", self.connect)
        monkeypatch.setattr(definition_checks, "tables_in_source", lambda *_: [A])
        monkeypatch.setattr(definition_checks, "read_definitions", lambda *_: {A: source("x", "y")})
        monkeypatch.setattr(definition_checks, "read_binlog_end", lambda _: END)
        monkeypatch.setattr(definition_checks, "source_positions", lambda _: self)
        monkeypatch.setattr(definition_checks, "connect_client", lambda _: None)

    @contextlib.contextmanager
    def connect(self, *_: object, **__: object) -> Iterator[Mock]:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        yield Mock()

    def confirmed(self) -> ConnectorOffset | None:
        return self.offset


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Source:
    return Source(monkeypatch)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def recorded(harness: Harness) -> ComparedDefinitions | None:
    harness.checks.step()
    return compared_definitions_in(harness.properties)


def test_definitions_are_read_at_the_start_and_after_a_statement(harness: Harness, watched: Source) -> None:
    harness.checks.start()
    until(lambda: (found := recorded(harness)) is not None and found.at_ms)
    reads = watched.reads
    harness.statements = 1
    harness.checks.step()
    until(lambda: watched.reads > reads)
    harness.checks.close()


def test_definitions_wait_for_the_connector(harness: Harness, watched: Source) -> None:
    watched.offset = ConnectorOffset("b.000001", 99)
    harness.checks.start()
    until(lambda: watched.reads)
    assert harness.checks.is_behind
    assert recorded(harness) is None
    watched.offset = ConnectorOffset("b.000001", 100)
    until(lambda: recorded(harness) is not None)
    harness.checks.close()


def test_a_run_does_not_wait_for_a_connector_that_has_stopped(
    harness: Harness, watched: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definition_checks, "_PATIENCE_S", 0.0)
    watched.offset = None
    harness.checks.start()
    until(lambda: watched.reads)
    assert not harness.checks.is_behind
    harness.checks.close()


@pytest.mark.parametrize("failure", [SourceUnavailable("cannot reach MySQL"), ValueError("what")])
def test_a_source_that_does_not_answer_is_told_and_asked_again(
    harness: Harness, watched: Source, failure: Exception
) -> None:
    watched.failure = failure
    harness.checks.start()
    until(lambda: (found := recorded(harness)) is not None and found.problem)
    assert not harness.checks.is_behind
    watched.failure = None
    until(lambda: (found := recorded(harness)) is not None and found.at_ms and not found.problem)
    harness.checks.close()
