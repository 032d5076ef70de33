"""The law of re-reads, against the oracle: a table that is read in parts, while any transactions change it, is
exact afterwards, whatever the mirror had before and wherever the process was killed.
"""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from replicator.errors import MirrorRolledBack, RowsChanged
from replicator.model.reread import Request, new_request
from replicator.model.table import TableId
from replicator.runner.rounds import Rounds
from tests.oracle.compare import assert_mirror_equals
from tests.oracle.events import ColumnSpec
from tests.oracle.model import DATABASE, Source, SourceTable
from tests.support.consumers import StoredConsumer, replayed
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.law import cuts, law, size
from tests.support.reread_lake import LakeReread, Moments

EXAMPLES = 2
NEVER = 10**9


@dataclass(frozen=True)
class RereadScenario:
    """How a source changes before, while and after a table is read again, and what the mirror has before.

    Attributes:
        mirrored: whether the table is in the mirror before, at any position; else it is new.
        held: whether the mirror misses all events from there on, as if the log had lost them.
        rolled_back: whether others set the mirror, which is held, back to its first snapshot. Its changelog stays.
        silent: number of rows that change without an event before the table is read.
        converted: whether a column gets another type before, and all its values change without an event.
        lag: number of the newest records that the log lacks when reading begins.
        crashes: the failpoints at which the process is killed while it catches up and publishes.
    """

    seed: int
    partitions: int
    encoding: str
    strategy: str
    mirrored: bool
    held: bool
    rolled_back: bool
    silent: int
    converted: bool
    before: int
    meanwhile: int
    after: int
    alters: int
    parts: int
    lag: int
    crashes: tuple[int, ...]

    @property
    def follows(self) -> bool:
        """Whether a consumer follows the table all the time, from its rows on. PyIceberg reads no equality deletes."""
        return self.mirrored and self.strategy != "equality"


scenarios = st.builds(
    RereadScenario,
    seed=st.integers(0, 2**32),
    partitions=st.sampled_from([1, 2, 3]),
    encoding=st.sampled_from(["json", "json-schemas"]),
    strategy=st.sampled_from(["split", "copy-on-write", "equality"]),
    mirrored=st.booleans(),
    held=st.booleans(),
    rolled_back=st.just(False),
    silent=st.integers(0, 6),
    converted=st.booleans(),
    before=size(0, 40),
    meanwhile=size(1, 40),
    after=size(0, 30),
    alters=st.sampled_from([0, 0, 10]),
    parts=st.integers(1, 4),
    lag=st.integers(0, 15),
    crashes=st.lists(st.integers(1, 15), max_size=2).map(tuple),
)


def change_silently(source: Source, table: SourceTable, count: int) -> None:
    """Change, delete and add rows as a session with `sql_log_bin = 0` does."""
    for number in range(count):
        keys = list(table.rows)
        if keys and number % 3 == 0:
            del table.rows[source.random.choice(keys)]
        elif keys and number % 3 == 1:
            key = source.random.choice(keys)
            table.rows[key] = table.rows[key] | {"number": source.random.randint(-9, 9)}
        else:
            row = source._new_row(table)
            table.rows[table.key_of(row)] = row


def convert_column(source: Source, table: SourceTable) -> None:
    """Give a column another type; the new values of its rows are in no event."""
    index, column = next((i, c) for i, c in enumerate(table.columns) if c.name == "seen")
    table.columns[index] = ColumnSpec("seen", "int")
    for row in table.rows.values():
        row[column.name] = source.random.choice([None, 5, 6])
    source._define(table, "ALTER", source._place(), "MODIFY COLUMN `seen` INT")


def roll_back(lake: LakeHarness, table: SourceTable) -> None:
    """Set a mirror back to its first snapshot, and check that the running mirror refuses it."""
    with lake.catalog() as catalog:
        first = catalog.load_table((DATABASE, table.name)).metadata.snapshots
    assume(len(first) > 1)
    mirror = lake.mirror()
    call = f"CALL lake.system.set_current_snapshot('{DATABASE}.{table.name}', {first[0].snapshot_id})"
    mirror.context.spark.sql(call).collect()
    found = mirror.context.ledger.load({TableId(DATABASE, table.name)})
    assert not found
    problem = mirror.context.ledger.progress(TableId(DATABASE, table.name)).problem
    assert isinstance(problem, MirrorRolledBack)


def assert_law(lake: LakeHarness, scenario: RereadScenario) -> None:
    chance = random.Random(scenario.seed)
    converted = scenario.converted and scenario.mirrored and scenario.held
    source = Source(
        scenario.seed,
        partitions=scenario.partitions,
        with_schemas=scenario.encoding == "json-schemas",
        alters=0 if converted else scenario.alters,
    )
    source.start(("bigint", "composite"), rows=10)
    source.run(scenario.before)
    table = source.tables[scenario.seed % 2]
    config = lake.config(apply={"strategy": scenario.strategy})
    if scenario.mirrored:
        lake.write(source.records, gaps=scenario.seed)
        mirror = lake.mirror(config)
        ends = {t: dict(ps) for t, ps in mirror.context.log.offsets()[1].items()}
        for cut in cuts(scenario.seed, 2, ends):
            Rounds(mirror, follows=False).advance(cut)
    written = len(source.records) if scenario.mirrored else 0
    follower = StoredConsumer(f"{DATABASE}.{table.name}", "mirror")
    if scenario.follows:
        follower.read(config)
    if scenario.rolled_back:
        roll_back(lake, table)

    # The source changes and the log follows; then the table is read, while its columns stay as they are.
    source.run(scenario.before)
    if converted:
        convert_column(source, table)
    if scenario.mirrored:
        change_silently(source, table, scenario.silent)
    known = max(written, len(source.records) - scenario.lag)
    # A definition is in the log before the table is read: without it, the source has other columns than the log says.
    known = max([known, *(i + 1 for i, r in enumerate(source.records) if r.topic == "shop")])
    lake.write(source.records[written:known], gaps=scenario.seed)
    request = replace(new_request(TableId(DATABASE, table.name), "a test"), held=scenario.held)
    began = (f"mysql-bin.{source.position[0]:06d}", source.position[1], source._ts + 1_000)
    moments, source.alters = Moments(source), 0
    moments.note()
    moments.run(scenario.meanwhile)
    chosen = sorted(chance.randrange(len(moments.seen)) for _ in range(scenario.parts))
    parts = [moments.seen[i].tables[table.name] for i in chosen]
    LakeReread(lake.mirror(config), table, request, began).read(parts)
    read = max(known, moments.seen[chosen[-1]].records)

    source.alters = 0 if converted else scenario.alters
    moments.run(scenario.after)
    ended = chance.choice([m.records for m in moments.seen if m.records >= read] or [read])
    lake.write(source.records[known:ended], gaps=scenario.seed)
    LakeReread(lake.mirror(config), table, request, began).complete()
    latest = next(m for m in moments.seen if m.records >= ended).tables[table.name]
    publish(lake, scenario, latest, request, began, follower)

    lake.write(source.records[ended:], gaps=scenario.seed)
    mirror = lake.mirror(config)
    Rounds(mirror, follows=False).advance(mirror.context.log.offsets()[1])
    assert mirror.summary().paused == {}
    with lake.catalog() as catalog:
        # Rows of the other table changed with events only.
        for each in source.tables:
            assert_mirror_equals(catalog, "shop", each)
    assert_changes(lake, scenario, table, follower)


def assert_changes(
    lake: LakeHarness, scenario: RereadScenario, table: SourceTable, follower: StoredConsumer
) -> None:
    """Assert that the changes of a table give the rows of its mirror, also to consumers."""
    converted = scenario.converted and scenario.mirrored and scenario.held
    if scenario.rolled_back:
        assert "h" not in {row["_change"]["op"] for row in lake.rows(table.name, "shop_changes")}
    # Images with other columns are not comparable, and an event after a silent change has an image that nothing added.
    silent = scenario.silent and scenario.mirrored and not scenario.held
    truncated = any(change.kind == "TRUNCATE" for change in table.changes)
    if not (scenario.alters or converted or silent or truncated):
        assert_changes_add_up(lake, table)
    if not (scenario.alters or converted or truncated):
        assert_consumers_have_the_mirror(lake, scenario, table, follower)


def publish(
    lake: LakeHarness,
    scenario: RereadScenario,
    table: SourceTable,
    request: Request,
    began: tuple[str, int, int],
    follower: StoredConsumer,
) -> None:
    """Publish a staging table, in new processes after crashes; `table` is the source at the end of the log."""
    config = lake.config(apply={"strategy": scenario.strategy})
    crashes, published = list(scenario.crashes), False
    while not published:
        try:
            with power_cut(crashes.pop() if crashes else NEVER):
                mirror = lake.mirror(config)
                if scenario.mirrored and not scenario.held:
                    Rounds(mirror, follows=False).advance(mirror.context.log.offsets()[1])
                LakeReread(mirror, table, request, began).publish()
                published = True
        except PowerCut:
            if scenario.follows:
                follower.read(config)
        except RowsChanged:
            LakeReread(lake.mirror(config), table, request, began).read([table])
            LakeReread(lake.mirror(config), table, request, began).complete()


def assert_consumers_have_the_mirror(
    lake: LakeHarness, scenario: RereadScenario, table: SourceTable, follower: StoredConsumer
) -> None:
    """Assert that the rows and changes of consumers from before, in between and after are those of the mirror."""
    rows = lake.rows(table.name)
    starts = ["changelog"] if scenario.strategy == "equality" else ["mirror", "changelog"]
    consumers = [StoredConsumer(f"{DATABASE}.{table.name}", start) for start in starts]
    for consumer in [*consumers, *([follower] if scenario.follows else [])]:
        consumer.read(lake.config())
        assert replayed(consumer.image, consumer.changes, table.key) == replayed(rows, [], table.key)


def assert_changes_add_up(lake: LakeHarness, table: SourceTable) -> None:
    """Assert that the changes in the changelog, added up, give the rows of the mirror."""
    total: Counter[str] = Counter()
    for row in lake.rows(table.name, "shop_changes"):
        kind = row.pop("_change")["kind"]
        total[image(row)] += 1 if kind in ("INSERT", "UPDATE_AFTER") else -1
    assert +total == Counter(image(row) for row in lake.rows(table.name))
    assert not -total


def image(row: Mapping[str, Any]) -> str:
    return repr(sorted((name, str(value)) for name, value in row.items()))


@pytest.mark.fault(
    "The mirror is killed while it publishes a table that was read again",
    area="Process",
    on="Iceberg; events of the model",
    outcome="publishing continues; consumers get each change once",
)
@law(EXAMPLES)
@given(scenario=scenarios)
def test_a_table_that_is_read_while_it_changes_is_exact(
    lake: LakeHarness, scenario: RereadScenario, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_law(LakeHarness(lake.base, Path(tmp_path_factory.mktemp("reread"))), scenario)


rolled_back = scenarios.map(
    lambda s: replace(s, mirrored=True, held=True, rolled_back=True, silent=0, converted=False)
)


an_alter_without_a_later_event = RereadScenario(
    seed=24013,
    partitions=1,
    encoding="json",
    strategy="copy-on-write",
    mirrored=True,
    held=True,
    rolled_back=True,
    silent=0,
    converted=False,
    before=24,
    meanwhile=1,
    after=27,
    alters=10,
    parts=1,
    lag=1,
    crashes=(),
)


@law(1)
@example(scenario=an_alter_without_a_later_event)
@given(scenario=rolled_back)
def test_a_mirror_that_was_rolled_back_is_exact_and_its_changelog_has_each_change_once(
    lake: LakeHarness, scenario: RereadScenario, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_law(LakeHarness(lake.base, Path(tmp_path_factory.mktemp("reread"))), scenario)
