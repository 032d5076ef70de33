"""The law of rebuilding, against the oracle: from the changelog of any transactions, in any batches, redelivered and
interrupted, every mirror can be rebuilt at every position, and in place; the mirror then continues exactly.
"""

import random
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from replicator.lake.reading.table_metadata import newest_marker
from replicator.model.moments import AsOf, Bound
from replicator.operations.rebuild.rebuild import rebuild_tables
from replicator.runner.rounds import Rounds
from tests.oracle.avro import AvroTopics
from tests.oracle.boundaries import Boundary, RecordedSource
from tests.oracle.compare import (
    assert_changelog_equals,
    assert_mirror_equals,
    assert_rows_equal,
    lake_rows,
    without_columns,
)
from tests.oracle.model import Source, SourceTable
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.law import cuts, law, size

EXAMPLES = 2


@dataclass(frozen=True)
class RebuildScenario:
    """How a source changes, how its log is read, and how the mirror and a rebuild in place are interrupted.

    Attributes:
        positions: how many positions the tables are rebuilt at.
        rewinds: whether the rebuild in place is of an earlier position, from which the mirror continues.
    """

    seed: int
    partitions: int
    encoding: str
    transactions: int
    restarts: int
    batches: int
    crashes: tuple[int, ...]
    compressed: bool
    alters: int
    strategy: str
    positions: int
    rebuild_crash: int
    rewinds: bool


scenarios = st.builds(
    RebuildScenario,
    seed=st.integers(0, 2**32),
    partitions=st.sampled_from([1, 2, 3]),
    encoding=st.sampled_from(["json", "json-schemas", "avro"]),
    transactions=size(20, 120),
    restarts=st.integers(0, 2),
    batches=st.integers(1, 3),
    crashes=st.lists(st.integers(1, 12), max_size=1).map(tuple),
    compressed=st.booleans(),
    alters=st.sampled_from([0, 3, 15]),
    strategy=st.sampled_from(["split", "copy-on-write"]),
    positions=st.integers(1, 3),
    rebuild_crash=st.integers(1, 5),
    rewinds=st.booleans(),
)


def as_of(boundary: Boundary) -> AsOf:
    # A boundary is the position behind an event, at which nothing begins.
    return AsOf("", bound=Bound(boundary.position_key - 1))


def passing_columns(then: SourceTable, now: SourceTable, seen: Collection[str]) -> set[str]:
    """Return the columns of a table that were added and dropped between two batches: the changelog has none of them.

    Args:
        seen: the columns of the mirror after each batch.
    """
    lasting, names = {c.first_name for c in now.columns}, {c.name for c in now.columns}
    return {
        c.name
        for c in then.columns
        if c.first_name not in lasting and (c.name not in seen or c.name in names)
    }


def note_columns(lake: LakeHarness, seen: Mapping[str, set[str]]) -> None:
    with lake.catalog() as catalog:
        for name, columns in seen.items():
            columns.update(column for row in lake_rows(catalog, "shop", name) for column in row)


def assert_rebuilt(
    catalog: Catalog, namespace: str, then: SourceTable, now: SourceTable, seen: Collection[str]
) -> None:
    """Assert that a rebuilt table has the rows of `then`, with all columns of which the changelog has values."""
    rows = lake_rows(catalog, namespace, then.name)
    found = {name for row in rows for name in row}
    assert_rows_equal(rows, without_columns(then, passing_columns(then, now, seen) - found))


def assert_law(lake: LakeHarness, scenario: RebuildScenario) -> None:
    # Events of compressed transactions need numbers, and events with schemas have none in this model.
    is_compressed = scenario.compressed and scenario.encoding == "json"
    source = Source(
        scenario.seed,
        partitions=scenario.partitions,
        with_schemas=scenario.encoding != "json",
        compressed=is_compressed,
        numbered=is_compressed,
        alters=scenario.alters,
    )
    source.start(("bigint", "composite", "varchar"), rows=8)
    recorded = RecordedSource(source)
    recorded.run(scenario.transactions)
    avro = AvroTopics() if scenario.encoding == "avro" else None
    # A rebuilt table does not have the number of its furthest event.
    restarts = 0 if is_compressed else scenario.restarts
    lake.write(source.delivered(restarts), gaps=scenario.seed, avro=avro)
    config = lake.config(apply={"strategy": scenario.strategy})
    mirror, crashes = lake.mirror(config), list(scenario.crashes)
    ends = {t: dict(ps) for t, ps in mirror.context.log.offsets()[1].items()}
    seen: dict[str, set[str]] = {table.name: set() for table in source.tables}
    for cut in cuts(scenario.seed, scenario.batches, ends):
        while True:
            try:
                with power_cut(crashes.pop() if crashes else 10**9):
                    Rounds(mirror, follows=False).advance(cut)
                break
            except PowerCut:
                mirror = lake.mirror(config)
        note_columns(lake, seen)
    chance = random.Random(scenario.seed)
    chosen = chance.sample(recorded.boundaries, min(scenario.positions, len(recorded.boundaries)))
    for number, boundary in enumerate(chosen):
        rebuild_tables(config, mirror.context.lake, as_of=as_of(boundary), to=f"then{number}")
        with lake.catalog() as catalog:
            for table in source.tables:
                assert_rebuilt(catalog, f"then{number}", boundary.tables[table.name], table, seen[table.name])

    moment = as_of(recorded.boundaries[-1] if scenario.alters else chosen[0])
    for cut_at in (scenario.rebuild_crash, 10**9):
        with suppress(PowerCut), power_cut(cut_at):
            rebuild_tables(config, mirror.context.lake, as_of=moment if scenario.rewinds else None)
            break
    mirror = lake.mirror(config)
    Rounds(mirror, follows=False).advance(ends)
    assert mirror.summary().paused == {}
    with lake.catalog() as catalog:
        for table in source.tables:
            assert_mirror_equals(catalog, "shop", table)
            assert_changelog_equals(catalog, "shop", table)
            assert_markers_agree(catalog, table.name)


def assert_markers_agree(catalog: Catalog, name: str) -> None:
    mirror, changelog = (newest_marker(catalog.load_table((ns, name))) for ns in ("shop", "shop_changes"))
    assert mirror is not None
    assert changelog is not None
    offsets = [
        {
            topic: {p: reached.next_offset for p, reached in ps.items()}
            for topic, ps in marker.progress.items()
        }
        for marker in (mirror, changelog)
    ]
    assert offsets[0] == offsets[1]


@pytest.mark.fault(
    "A rebuild in place is killed",
    area="Process",
    on="Iceberg; events of the model",
    outcome="the rebuild is repeated, and the mirror continues",
)
@law(EXAMPLES)
@given(scenario=scenarios)
def test_mirrors_are_rebuilt_at_any_position_and_continue(
    lake: LakeHarness, scenario: RebuildScenario, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_law(LakeHarness(lake.base, Path(tmp_path_factory.mktemp("rebuild"))), scenario)
