"""Two lake tables exchange their names, with a power cut at any step."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from replicator.batch.context import Exchanged
from replicator.batch.exchange import Exchange, follow_exchange, is_begun
from replicator.model.commit_marker import CommitMarker, PartitionProgress
from replicator.model.position import SourcePosition
from replicator.model.table import SOURCE_KEY, TableId, TableSchema
from replicator.schema.changes import SCHEMA_KEY, SchemaState
from replicator.schema.history import SchemaVersion
from tests.support.failpoints import PowerCut

ONE, OTHER = TableId("shop", "one"), TableId("shop", "other")
AT = 90
EXCHANGE = Exchange(
    ONE,
    OTHER,
    SchemaVersion(AT, SourcePosition("b.000001", AT), 0, TableSchema(()), {}, exchanged_with=OTHER),
)
NAMESPACES = ("shop_changes", "shop")


class Table:
    """A lake table; its `content` is the source table whose rows it has."""

    def __init__(self, lake: "Lake", namespace: str, name: str) -> None:
        self.lake, self.namespace, self.name = lake, namespace, name
        self.kept = lake.kept[namespace, name]

    def marker(self) -> CommitMarker | None:
        found: CommitMarker | None = self.kept["marker"]
        return found

    def schema_state(self) -> SchemaState | None:
        return SchemaState.from_json(self.kept[SCHEMA_KEY])

    def property(self, key: str) -> str | None:
        found: str | None = self.kept.get(key)
        return found


class Lake:
    """Tables by namespace and name. Each change of a table is a step; the process ends before step `cut`."""

    def __init__(self, present: tuple[TableId, ...]) -> None:
        self.kept: dict[tuple[str, str], dict[str, Any]] = {}
        self.steps, self.cut = 0, 0
        for namespace in NAMESPACES:
            for number, table in enumerate(present, start=1):
                topic = f"t.{table}"
                self.kept[namespace, table.name] = {
                    "content": table,
                    "marker": CommitMarker("m", number, 1, {topic: {0: PartitionProgress(10 * number)}}),
                    SOURCE_KEY: str(table),
                    SCHEMA_KEY: SchemaState(10).to_json(),
                }

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.cut:
            raise PowerCut

    def load(self, namespace: str, name: str) -> Table | None:
        return Table(self, namespace, name) if (namespace, name) in self.kept else None

    def rename(self, namespace: str, old: str, new: str) -> None:
        self.step()
        assert (namespace, new) not in self.kept
        self.kept[namespace, new] = self.kept.pop((namespace, old))

    def set_properties(self, table: Table, properties: dict[str, str]) -> None:
        self.step()
        table.kept.update(properties)

    def publish(self, table: Table, base: CommitMarker, marker: CommitMarker) -> None:
        self.step()
        assert table.kept["marker"] == base
        table.kept["marker"] = marker


def engine_of(lake: Lake) -> Any:
    names = SimpleNamespace(namespace=NAMESPACES[1], changes_namespace=NAMESPACES[0])
    return SimpleNamespace(
        lake=lake,
        config=SimpleNamespace(lake=names, mirror=SimpleNamespace(name="m")),
        ledger=SimpleNamespace(forget=Mock()),
        row_locations=SimpleNamespace(forget=Mock()),
        writer=SimpleNamespace(
            commit=lambda target, _, marker: lake.publish(target.table, target.base, marker)
        ),
        exchanged=Exchanged(standing={(ONE, AT), (OTHER, AT)}),
    )


def assert_exchanged(lake: Lake, present: tuple[TableId, ...]) -> None:
    assert lake.kept.keys() == {
        (namespace, EXCHANGE.partner(table).name) for namespace in NAMESPACES for table in present
    }
    for (_, name), kept in lake.kept.items():
        assert kept["content"] == EXCHANGE.partner(TableId("shop", name))
        assert kept[SOURCE_KEY] == f"shop.{name}"
        assert SchemaState.from_json(kept[SCHEMA_KEY]).at == AT
        # The offsets at which each topic continues.
        reached = {t: partitions[0].next_offset for t, partitions in kept["marker"].progress.items()}
        assert reached == {f"t.{table}": 10 * (1 + present.index(table)) for table in present}


@pytest.mark.parametrize("present", [(ONE, OTHER), (ONE,), (OTHER,), ()])
def test_follow_exchange_exchanges_the_names_of_two_tables(present: tuple[TableId, ...]) -> None:
    lake = Lake(present)
    context = engine_of(lake)
    assert not is_begun(context, EXCHANGE)
    follow_exchange(context, EXCHANGE)
    assert_exchanged(lake, present)
    assert not is_begun(context, EXCHANGE)
    assert context.exchanged == Exchanged(done={(ONE, AT), (OTHER, AT)})


@pytest.mark.parametrize("seen_by", [EXCHANGE, Exchange(OTHER, ONE, EXCHANGE.version)])
@pytest.mark.parametrize("present", [(ONE, OTHER), (ONE,), (OTHER,)])
def test_follow_exchange_continues_after_a_power_cut_at_any_step(
    present: tuple[TableId, ...], seen_by: Exchange
) -> None:
    whole = Lake(present)
    follow_exchange(engine_of(whole), EXCHANGE)
    assert whole.steps == {2: 14, 1: 4}[len(present)]
    for cut in range(1, whole.steps + 1):
        lake = Lake(present)
        lake.cut = cut
        with pytest.raises(PowerCut):
            follow_exchange(engine_of(lake), EXCHANGE)
        # The first recorded owner shows that it began; before that, only the progress in the topics has changed.
        marked = any(SchemaState.from_json(kept[SCHEMA_KEY]).at == AT for kept in lake.kept.values())
        assert is_begun(engine_of(lake), seen_by) == marked
        follow_exchange(engine_of(lake), seen_by)
        assert_exchanged(lake, present)


def test_follow_exchange_restores_the_names_when_tables_exchange_them_twice() -> None:
    lake = Lake((ONE, OTHER))
    context: Any = None
    for at in (AT, AT + 10):
        context = engine_of(lake)
        version = SchemaVersion(
            at, SourcePosition("b.000001", at), 0, TableSchema(()), {}, exchanged_with=OTHER
        )
        follow_exchange(context, Exchange(ONE, OTHER, version))
    assert all(kept["content"].name == name for (_, name), kept in lake.kept.items())
    assert not is_begun(context, EXCHANGE)
