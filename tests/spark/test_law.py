"""The correctness law, against the oracle: any transactions, any batches, redelivered suffixes, crashes at any point.

At the end the mirror equals the source and the changelog has each change once.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.runner.rounds import Rounds
from replicator.runner.scheduler import Scheduler
from tests.oracle.avro import AvroTopics
from tests.oracle.compare import assert_changelog_equals, assert_mirror_equals
from tests.oracle.model import Source
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.law import cuts, law, size

EXAMPLES = 2


@dataclass(frozen=True)
class LoadScenario:
    """How a source changes, how its log is delivered, and how the mirror is interrupted."""

    seed: int
    shapes: tuple[str, ...]
    partitions: int
    encoding: str
    transactions: int
    restarts: int
    batches: int
    crashes: tuple[int, ...]
    max_events: int
    strategy: str
    driver_max_events: int
    compressed: bool
    alters: int
    format_version: int = 2

    @property
    def is_compressed(self) -> bool:
        """Return whether transactions are compressed. Events with schemas have no numbers in this model."""
        return self.compressed and self.encoding == "json"


scenarios = st.builds(
    LoadScenario,
    seed=st.integers(0, 2**32),
    shapes=st.lists(st.sampled_from(["bigint", "composite", "varchar"]), min_size=1, max_size=2).map(tuple),
    partitions=st.sampled_from([1, 2, 3]),
    encoding=st.sampled_from(["json", "json-schemas", "avro"]),
    transactions=size(5, 120),
    restarts=st.integers(0, 3),
    batches=st.integers(1, 4),
    crashes=st.lists(st.integers(1, 12), max_size=2).map(tuple),
    max_events=st.sampled_from([40, 1_000_000]),
    strategy=st.sampled_from(["split", "equality", "merge", "copy-on-write"]),
    # Maximum number of events on the driver side: no batch, some batches, all batches.
    driver_max_events=st.sampled_from([0, 20, 10_000]),
    compressed=st.booleans(),
    alters=st.sampled_from([3, 15]),
)
scenarios_of_version_3 = st.builds(
    replace, scenarios, format_version=st.just(3), strategy=st.sampled_from(["split", "split", "merge"])
)


def live(lake: LakeHarness, scenario: LoadScenario) -> Source:
    """Apply the log of the scenario to its end, with its crashes."""
    source = Source(
        scenario.seed,
        partitions=scenario.partitions,
        with_schemas=scenario.encoding != "json",
        compressed=scenario.is_compressed,
        numbered=scenario.is_compressed,
        alters=scenario.alters,
    )
    source.start(scenario.shapes, rows=8)
    source.run(scenario.transactions)
    avro = AvroTopics() if scenario.encoding == "avro" else None
    lake.write(source.delivered(scenario.restarts), gaps=scenario.seed, avro=avro)
    config = lake.config(
        apply={
            "max_events": scenario.max_events,
            "strategy": scenario.strategy,
            "format_version": scenario.format_version,
            "parallel_tables": 2,
        }
    )
    new_process: Callable[[], Scheduler] = lambda: lake.mirror(config)  # noqa: E731
    mirror = new_process()
    _, ends = mirror.context.log.offsets()
    crashes = list(scenario.crashes)
    for cut in cuts(scenario.seed, scenario.batches, ends):
        while crashes:
            try:
                with power_cut(crashes.pop()):
                    Rounds(mirror, follows=False).advance(cut)
            except PowerCut:
                mirror = new_process()
            else:
                break
        Rounds(mirror, follows=False).advance(cut)
        assert mirror.summary().paused == {}
    return source


def assert_law(lake: LakeHarness, scenario: LoadScenario) -> None:
    lake.driver_max_events = scenario.driver_max_events
    source = live(lake, scenario)
    with lake.catalog() as catalog:
        for table in source.tables:
            assert_mirror_equals(catalog, "shop", table)
            assert_changelog_equals(catalog, "shop", table)


@pytest.mark.fault(
    "The mirror is killed at any failpoint of a batch, twice",
    area="Process",
    on="Iceberg; events of the model",
    outcome="the next process continues at the markers in the lake",
)
@pytest.mark.fault(
    "The connector is killed, and writes its last events again, up to three times",
    area="Events",
    on="Iceberg; events of the model",
    outcome="events that the lake has are skipped",
)
@law(EXAMPLES)
@given(scenario=scenarios)
def test_mirror_equals_source_and_changelog_has_each_change_once(
    lake: LakeHarness, scenario: LoadScenario, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_law(LakeHarness(lake.base, Path(tmp_path_factory.mktemp("law"))), scenario)


@pytest.mark.long
@law(EXAMPLES)
@given(scenario=scenarios_of_version_3)
def test_law_holds_for_mirrors_of_format_version_3(
    lake: LakeHarness, scenario: LoadScenario, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_law(LakeHarness(lake.base, Path(tmp_path_factory.mktemp("law"))), scenario)
