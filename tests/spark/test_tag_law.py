"""The law of tags, against the oracle: whenever a tag is requested and however its batches are cut, delivered again and
interrupted, every tagged table equals the source at the tag's position.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.model.position import PackedPosition
from replicator.model.tags import TagState
from replicator.runner.rounds import Rounds
from replicator.runner.scheduler import Scheduler
from tests.oracle.avro import AvroTopics
from tests.oracle.boundaries import Boundary, RecordedSource
from tests.oracle.compare import assert_mirror_equals, assert_rows_equal, tagged_rows
from tests.oracle.model import Source
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.law import cuts, law, size
from tests.support.tagged_lake import GivenPositions, recorded, request, with_positions

NAME = "noon"

EXAMPLES = 2


@dataclass(frozen=True)
class TagScenario:
    """How a source changes, how its log is read, when a tag is requested, and how the mirror is interrupted.

    Attributes:
        tag_at: number of the batch before which the tag is requested.
        later: how many transactions after the newest one in the lake the source's binlog ends then.
        proven_at: number of the batch before which the connector confirms the position.
    """

    seed: int
    partitions: int
    encoding: str
    transactions: int
    restarts: int
    batches: int
    tag_at: int
    later: int
    proven_at: int
    crashes: tuple[int, ...]
    max_events: int
    driver_max_events: int
    strategy: str
    alters: int


scenarios = st.builds(
    TagScenario,
    seed=st.integers(0, 2**32),
    partitions=st.sampled_from([1, 1, 2, 3]),
    encoding=st.sampled_from(["json", "json-schemas", "avro"]),
    transactions=size(20, 120),
    restarts=st.integers(0, 2),
    batches=st.integers(2, 5),
    tag_at=st.integers(0, 3),
    later=st.integers(0, 40),
    proven_at=st.integers(0, 5),
    crashes=st.lists(st.integers(1, 25), max_size=2).map(tuple),
    max_events=st.sampled_from([40, 1_000_000]),
    driver_max_events=st.sampled_from([0, 10_000]),
    strategy=st.sampled_from(["split", "merge"]),
    alters=st.sampled_from([0, 3, 15]),
)


@dataclass
class TaggedRun:
    """A mirror that reads the log of a scenario batch by batch."""

    lake: LakeHarness
    scenario: TagScenario
    recorded: RecordedSource
    positions: GivenPositions
    boundary: Boundary | None = None

    def mirror(self) -> Scheduler:
        sections = {
            "max_events": self.scenario.max_events,
            "strategy": self.scenario.strategy,
            "parallel_tables": 2,
        }
        return self.lake.mirror(self.lake.config(apply=sections))

    def request(self, mirror: Scheduler) -> None:
        """Request the tag at a position after everything in the lake."""
        reached = 0
        for topic in mirror.context.log.offsets()[1]:
            progress = mirror.context.ledger.progress(mirror.tables.table_of(topic))
            for marker in (progress.mirror, progress.changelog):
                if marker is not None and marker.position is not None:
                    reached = max(reached, PackedPosition.pack(marker.position).position_key + 1)
        later = self.recorded.at_or_after(reached)
        self.boundary = later[min(self.scenario.later, len(later) - 1)]
        self.positions.binlog_end = self.boundary.end
        request(mirror, NAME)


def live(lake: LakeHarness, scenario: TagScenario) -> TaggedRun:
    """Apply the log of the scenario to its end, with its tag and its crashes."""
    source = Source(
        scenario.seed,
        partitions=scenario.partitions,
        with_schemas=scenario.encoding != "json",
        alters=scenario.alters,
    )
    source.start(("bigint", "composite", "varchar"), rows=8)
    run = TaggedRun(lake, scenario, RecordedSource(source), GivenPositions())
    run.recorded.run(scenario.transactions)
    avro = AvroTopics() if scenario.encoding == "avro" else None
    lake.write(source.delivered(scenario.restarts), gaps=scenario.seed, avro=avro)
    with_positions(lake, run.positions)
    mirror, crashes = run.mirror(), list(scenario.crashes)
    ends = {t: dict(ps) for t, ps in mirror.context.log.offsets()[1].items()}
    for number, cut in enumerate(cuts(scenario.seed, scenario.batches, ends)):
        if number == min(scenario.tag_at, scenario.batches - 1):
            run.request(mirror)
        if run.boundary is not None and number >= scenario.proven_at:
            run.positions.confirmed_end = run.boundary.end
        while True:
            try:
                with power_cut(crashes.pop() if crashes else 10**9):
                    Rounds(mirror, follows=False).advance(cut)
                break
            except PowerCut:
                mirror = run.mirror()
        assert mirror.summary().paused == {}
    assert run.boundary is not None
    run.positions.confirmed_end = run.boundary.end
    rounds = Rounds(mirror, follows=False)
    for _ in range(3):
        mirror.tags.poll_now()
        rounds.advance(ends)
    assert recorded(mirror, NAME).state is TagState.COMPLETE, recorded(mirror, NAME)
    return run


def assert_tagged(run: TaggedRun) -> None:
    assert run.boundary is not None
    with run.lake.catalog() as catalog:
        for table in run.boundary.tables.values():
            mirror = catalog.load_table(("shop", table.name))
            assert_rows_equal(tagged_rows(mirror, NAME), table)
            changes = tagged_rows(catalog.load_table(("shop_changes", table.name)), NAME)
            assert len(changes) == len(table.changes)
        for table in run.recorded.source.tables:
            assert_mirror_equals(catalog, "shop", table)


@pytest.mark.fault(
    "The mirror is killed at any failpoint while a tag is made",
    area="Process",
    on="Iceberg; events of the model",
    outcome="the next process completes the tag",
)
@law(EXAMPLES)
@given(scenario=scenarios)
def test_every_tagged_table_equals_the_source_at_the_position(
    lake: LakeHarness, scenario: TagScenario, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fresh = LakeHarness(lake.base, Path(tmp_path_factory.mktemp("tags")), scenario.driver_max_events)
    assert_tagged(live(fresh, scenario))
