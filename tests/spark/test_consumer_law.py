"""The law of consumers, against the oracle: whatever the mirror, its maintenance and the consumers do, each consumer
gets each change once, and its rows and changes together are the source.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.config import Config
from replicator.consumer import FeedOptions
from replicator.errors import Unsettled
from replicator.runner.rounds import Rounds
from replicator.runner.scheduler import Scheduler
from tests.oracle.avro import AvroTopics
from tests.oracle.compare import assert_changes_equal, lake_rows
from tests.oracle.model import Source, SourceTable
from tests.support.consumers import StoredConsumer, maintained, replayed
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.law import cuts, law, size

EXAMPLES = 2


@dataclass(frozen=True)
class ConsumerScenario:
    """How a source changes, how its log is read, and how mirror and consumers are interrupted.

    Attributes:
        batch_rows, sorted_rows: as in `FeedOptions`; small ones divide commits and files.
    """

    seed: int
    partitions: int
    encoding: str
    transactions: int
    restarts: int
    batches: int
    crashes: tuple[int, ...]
    max_events: int
    driver_max_events: int
    alters: int
    batch_rows: int
    sorted_rows: int


scenarios = st.builds(
    ConsumerScenario,
    seed=st.integers(0, 2**32),
    partitions=st.sampled_from([1, 1, 2, 3]),
    encoding=st.sampled_from(["json", "json-schemas", "avro"]),
    transactions=size(20, 120),
    restarts=st.integers(0, 2),
    batches=st.integers(2, 6),
    crashes=st.lists(st.integers(1, 12), max_size=2).map(tuple),
    max_events=st.sampled_from([40, 1_000_000]),
    driver_max_events=st.sampled_from([0, 10_000]),
    alters=st.sampled_from([0, 0, 5]),
    batch_rows=st.sampled_from([1, 7, 10_000]),
    sorted_rows=st.sampled_from([3, 20, 1_000_000]),
)


def new_consumers(table: SourceTable, scenario: ConsumerScenario) -> list[StoredConsumer]:
    options = FeedOptions(scenario.batch_rows, scenario.sorted_rows, settle_seconds=0)
    return [StoredConsumer(f"shop.{table.name}", start, options) for start in ("mirror", "changelog")]


def assert_law(lake: LakeHarness, scenario: ConsumerScenario) -> None:
    source = Source(
        scenario.seed,
        partitions=scenario.partitions,
        with_schemas=scenario.encoding != "json",
        alters=scenario.alters,
    )
    source.start(("bigint", "composite"), rows=8)
    source.run(scenario.transactions)
    avro = AvroTopics() if scenario.encoding == "avro" else None
    lake.write(source.delivered(scenario.restarts), gaps=scenario.seed, avro=avro)
    config = lake.config(
        apply={"max_events": scenario.max_events, "parallel_tables": 2}, maintenance={"enabled": False}
    )
    chance = random.Random(scenario.seed)
    consumers: list[tuple[SourceTable, StoredConsumer]] = []
    new_process: Callable[[], Scheduler] = lambda: lake.mirror(config)  # noqa: E731
    mirror, crashes = new_process(), list(scenario.crashes)
    _, ends = mirror.context.log.offsets()
    for cut in cuts(scenario.seed, scenario.batches, ends):
        try:
            with power_cut(crashes.pop() if crashes else 10**9):
                Rounds(mirror, follows=False).advance(cut)
        except PowerCut:
            # Consumers read also what a killed process left.
            read(consumers, config, chance)
            mirror = new_process()
            Rounds(mirror, follows=False).advance(cut)
        for table in source.tables:
            if chance.random() < 0.5 and mirror.context.lake.load("shop", table.name) is not None:
                consumers += [(table, consumer) for consumer in new_consumers(table, scenario)]
            read(consumers, config, chance)
            maintained(mirror, table.name, chance)
    for table in source.tables:
        consumers += [(table, consumer) for consumer in new_consumers(table, scenario)]
    for table, consumer in consumers:
        consumer.read(config)
        assert_exact(lake, table, consumer, scenario)


def read(consumers: list[tuple[SourceTable, StoredConsumer]], config: Config, chance: random.Random) -> None:
    """Let some consumers read, and kill some of them meanwhile."""
    for _, consumer in consumers:
        if chance.random() < 0.6:
            try:
                consumer.read(config, chance.choice((None, 0, 1, 2, 5)))
            except Unsettled:
                # A killed mirror left the changelog ahead, in another schema. The consumer has not begun.
                assert consumer.cursor is None


def assert_exact(
    lake: LakeHarness, table: SourceTable, consumer: StoredConsumer, scenario: ConsumerScenario
) -> None:
    got = consumer.changes
    if consumer.start == "changelog":
        assert_changes_equal(got, table)
    else:
        found = Counter(map(place, got))
        assert set(found.values()) <= {1}, f"{table.name}: twice: {found}"
    # In a topic of several partitions, rows of the image do not tell whether they are older than a TRUNCATE.
    is_certain = consumer.start == "changelog" or scenario.partitions == 1
    if scenario.alters or not is_certain:
        return
    with lake.catalog() as catalog:
        wanted = replayed(lake_rows(catalog, "shop", table.name), [], table.key)
    assert replayed(consumer.image, got, table.key) == wanted, consumer


def place(row: dict[str, object]) -> tuple[object, ...]:
    change = row["_change"]
    assert isinstance(change, dict)
    names = ("file", "pos", "row", "op", "kind", "partition", "offset")
    return tuple(change[name] for name in names)


@law(EXAMPLES)
@given(scenario=scenarios)
def test_each_consumer_gets_each_change_once_and_has_the_rows_of_the_mirror(
    lake: LakeHarness, scenario: ConsumerScenario, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fresh = LakeHarness(lake.base, Path(tmp_path_factory.mktemp("consumers")), scenario.driver_max_events)
    assert_law(fresh, scenario)
