"""The law of narrowed re-reads: rows within the spans equal the source afterwards, and a fault elsewhere is left alone.

The source changes while the part is read, and the process is killed anywhere.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.errors import RowsChanged
from replicator.model.reread import KeySpan, Narrowed, Request, new_request
from replicator.model.table import TableId
from replicator.runner.rounds import Rounds
from tests.oracle.compare import lake_value
from tests.oracle.model import DATABASE, Source, SourceTable
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.law import law
from tests.support.reread_lake import LakeReread, Moments

EXAMPLES = 2
NEVER = 10**9
FAULTY = 123_456_789
FEW = 8


@dataclass(frozen=True)
class NarrowedScenario:
    """How a source changes while a part of a table is read, and where the process is killed."""

    seed: int
    shape: str
    strategy: str
    meanwhile: int
    crashes: tuple[int, ...]


scenarios = st.builds(
    NarrowedScenario,
    seed=st.integers(0, 2**32),
    shape=st.sampled_from(["bigint", "composite"]),
    strategy=st.sampled_from(["split", "copy-on-write", "equality"]),
    meanwhile=st.sampled_from([0, 10, 30]),
    crashes=st.lists(st.integers(1, 15), max_size=2).map(tuple),
)


def spans(table: SourceTable) -> Narrowed:
    """Return two spans that have about half of the keys, or one value of few."""
    keys = sorted({key[0] for key in table.rows})
    if len(keys) < FEW:
        return Narrowed(table.key[0], (KeySpan(keys[0], keys[0], 3),))
    low, middle, upper, high = (keys[len(keys) * i // 8] for i in (1, 3, 5, 7))
    return Narrowed(table.key[0], (KeySpan(low, middle, 3), KeySpan(upper, high, 3)))


def is_within(part: Narrowed, key: Any) -> bool:
    return any(span.low <= key <= span.high for span in part.spans)


def only_part(table: SourceTable, part: Narrowed) -> SourceTable:
    """Return the rows that are read."""
    found = copy.deepcopy(table)
    found.rows = {key: row for key, row in found.rows.items() if is_within(part, key[0])}
    return found


def plant_faults(table: SourceTable, part: Narrowed) -> dict[Any, dict[str, Any]]:
    """Change rows without an event, and delete one in each region. Return the former rows by key."""
    former = copy.deepcopy(table.rows)
    for inside in (True, False):
        keys = [key for key in sorted(table.rows) if is_within(part, key[0]) is inside]
        for key in keys[::2]:
            table.rows[key] = table.rows[key] | {"number": FAULTY}
        for key in keys[1:2]:
            del table.rows[key]
    return former


def as_lake(table: SourceTable, row: Mapping[str, Any]) -> dict[str, Any]:
    return {c.name: lake_value(c.kind, row[c.name]) for c in table.columns}


def assert_law(lake: LakeHarness, scenario: NarrowedScenario) -> None:
    source = Source(scenario.seed, alters=0, truncates=False)
    source.start((scenario.shape,), rows=40)
    source.run(10)
    table, config = source.tables[0], lake.config(apply={"strategy": scenario.strategy})
    lake.write(source.records)
    mirror = lake.mirror(config)
    Rounds(mirror, follows=False).advance(mirror.context.log.offsets()[1])
    written = len(source.records)

    part = spans(table)
    former = plant_faults(table, part)
    request = new_request(TableId(DATABASE, table.name), "a test", narrowed=part)
    began = (f"mysql-bin.{source.position[0]:06d}", source.position[1], source._ts + 1_000)
    moments = Moments(source)
    moments.note()
    moments.run(scenario.meanwhile)
    read = moments.seen[len(moments.seen) // 2].tables[table.name]
    LakeReread(lake.mirror(config), table, request, began).read([only_part(read, part)])
    lake.write(source.records[written:])
    LakeReread(lake.mirror(config), table, request, began).complete()
    publish(lake, scenario, only_part(table, part), request, began)

    found = {tuple(row[name] for name in table.key): row for row in lake.rows(table.name)}
    wanted = {key: as_lake(table, row) for key, row in table.rows.items()}
    inside, outside = (
        {key: row for key, row in found.items() if is_within(part, key[0]) is which}
        for which in (True, False)
    )
    assert inside == {key: row for key, row in wanted.items() if is_within(part, key[0])}
    for key in outside.keys() | {key for key in wanted if not is_within(part, key[0])}:
        before = as_lake(table, former[key]) if key in former else None
        assert outside.get(key) in (wanted.get(key), before)
    if not scenario.meanwhile:
        assert outside == {k: as_lake(table, row) for k, row in former.items() if not is_within(part, k[0])}
    reconciled = [row for row in lake.rows(table.name, "shop_changes") if row["_change"]["op"] == "h"]
    assert all(is_within(part, row[table.key[0]]) for row in reconciled)
    if not scenario.meanwhile:
        assert len(reconciled) == sum(
            2 if key in table.rows else 1
            for key, row in former.items()
            if is_within(part, key[0]) and table.rows.get(key) != row
        )


def publish(
    lake: LakeHarness,
    scenario: NarrowedScenario,
    table: SourceTable,
    request: Request,
    began: tuple[str, int, int],
) -> None:
    """Publish the part, in new processes after crashes."""
    config = lake.config(apply={"strategy": scenario.strategy})
    crashes, published = list(scenario.crashes), False
    while not published:
        try:
            with power_cut(crashes.pop() if crashes else NEVER):
                mirror = lake.mirror(config)
                Rounds(mirror, follows=False).advance(mirror.context.log.offsets()[1])
                LakeReread(mirror, table, request, began).publish()
                published = True
        except PowerCut:
            pass
        except RowsChanged:
            LakeReread(lake.mirror(config), table, request, began).read([table])
            LakeReread(lake.mirror(config), table, request, began).complete()


@law(EXAMPLES)
@given(scenario=scenarios)
def test_a_part_that_is_read_while_it_changes_is_exact_and_the_rest_is_left_alone(
    lake: LakeHarness, scenario: NarrowedScenario, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_law(LakeHarness(lake.base, Path(tmp_path_factory.mktemp("narrowed"))), scenario)
