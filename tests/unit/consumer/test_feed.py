"""What a consumer gets: order, limits, restarts at any batch, waiting, and what is refused."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.types import IntegerType, StringType

from replicator.consumer.batches import Batch, BatchKind, ColumnNotice
from replicator.consumer.cursor import Cursor
from replicator.consumer.feed import FeedOptions
from replicator.errors import CursorExpired, Unsettled, UsageError
from replicator.model.changelog import Restatement
from replicator.model.commit_marker import MARKER_KEY
from replicator.schema.evolution.changes import PENDING_FILLS_KEY, SCHEMA_KEY, SchemaState
from replicator.schema.evolution.steps import STEPS_KEY, SchemaStep, SchemaSteps
from replicator.schema.history.partitions import RowCondition
from tests.support.small_changelog import Event, SmallChangelog, events_in, small_changelog


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SmallChangelog]:
    with small_changelog(tmp_path) as made:
        yield made


def got(batches: list[Batch]) -> list[Event]:
    return events_in([b.rows for b in batches if b.kind is BatchKind.CHANGES])


def read(log: SmallChangelog, start: str | Cursor, options: FeedOptions | None = None) -> list[Batch]:
    feed = log.feed(options)
    return list(feed.batches(start if isinstance(start, Cursor) else feed.start(start)))


def end(batches: list[Batch]) -> Cursor:
    return Cursor.from_json(batches[-1].cursor.to_json())


def test_rows_of_the_mirror_come_first_and_then_later_changes(log: SmallChangelog) -> None:
    log.commit(Event(1, 0), Event(2, 1))
    log.mirror(1, 2)
    first = read(log, "mirror")
    assert [b.kind for b in first] == [BatchKind.ROWS, BatchKind.SCHEMA]
    assert first[0].rows.to_pydict() == {"id": [1, 2]}
    log.commit(Event(3, 2))
    log.commit(Event(4, 5))
    assert got(read(log, end(first))) == [Event(3, 2), Event(4, 5)]


def test_columns_are_announced_once(log: SmallChangelog) -> None:
    log.commit(Event(1, 0))
    first = read(log, "changelog")
    assert first[0].schema is not None
    assert first[0].schema.columns == (ColumnNotice(1, "id", "long"),)
    assert first[0].change == "_change"
    log.commit(Event(2, 1))
    second = read(log, end(first))
    assert [b.kind for b in second] == [BatchKind.CHANGES]
    with log.table().update_schema() as update:
        from pyiceberg.types import StringType

        update.add_column("name", StringType())
    third = read(log, end(second))
    assert [b.kind for b in third] == [BatchKind.SCHEMA]
    assert third[0].schema is not None
    assert [(c.name, c.type) for c in third[0].schema.columns] == [("id", "long"), ("name", "string")]


REMOVED = SchemaStep(7, unlogged="DROP PARTITION p0", removed=RowCondition(("id",), "({0} < 5)"))


def record(log: SmallChangelog, *steps: SchemaStep) -> None:
    set_property(log, "shop_changes", STEPS_KEY, SchemaSteps(("id",), steps).to_json())


def announced(batches: list[Batch]) -> list[int]:
    """Return the steps that were announced."""
    return [step["at"] for b in batches if b.schema is not None for step in b.schema.steps]


@pytest.mark.parametrize(
    ("step", "is_told"),
    [
        (SchemaStep(7, recreated=True), True),
        (SchemaStep(7, key_before=("name",)), True),
        (SchemaStep(7, unlogged="EXCHANGE PARTITION p0", known_from=9), False),
    ],
)
def test_what_no_change_tells_is_announced_although_the_columns_stay(
    log: SmallChangelog, step: SchemaStep, is_told: bool
) -> None:
    log.commit(Event(1, 0))
    first = read(log, "changelog")
    record(log, step)
    assert announced(read(log, end(first))) == [7] * is_told


def test_follower_is_told_of_removed_rows_before_the_next_change(log: SmallChangelog) -> None:
    log.commit(Event(1, 0))
    feed = log.feed(FeedOptions(poll_seconds=0.01))
    found = []
    for batch in feed.batches(feed.start("changelog"), follow=True):
        found.append(batch)
        if got([batch]):
            record(log, REMOVED)
        elif announced([batch]):
            feed.stop.set()
    assert [b.kind for b in found] == [BatchKind.SCHEMA, BatchKind.CHANGES, BatchKind.SCHEMA]


def test_removed_rows_are_announced_after_snapshots_were_deleted(log: SmallChangelog) -> None:
    log.commit(Event(1, 0))
    first = read(log, "changelog")
    record(log, REMOVED)
    log.commit(Event(2, 1))
    log.expire()
    second = read(log, end(first))
    assert (announced(second), got(second)) == ([7], [Event(2, 1)])
    fresh = read(log, "changelog")
    assert (announced(fresh), got(fresh)) == ([7], [Event(1, 0), Event(2, 1)])


def test_consumer_that_lacks_a_forgotten_step_is_refused(log: SmallChangelog) -> None:
    log.commit(Event(1, 0))
    first = read(log, "changelog")
    text = SchemaSteps(("id",), (replace(REMOVED, at=9),), complete=False, forgotten=7).to_json()
    set_property(log, "shop_changes", STEPS_KEY, text)
    for start in (end(first), "changelog"):
        with pytest.raises(CursorExpired, match="so many statements"):
            read(log, start)
    assert announced(read(log, replace(end(first), steps_at=7))) == [9]


@pytest.mark.parametrize(("at", "steps"), [(6, [7]), (7, [])])
def test_rows_of_a_mirror_that_has_not_passed_a_statement_are_followed_by_it(
    log: SmallChangelog, at: int, steps: list[int]
) -> None:
    """The changelog records the statement first. A consumer of the mirror's rows before it gets the step."""
    log.commit(Event(1, 0), Event(2, 1))
    log.mirror(1, 2)
    set_property(log, "shop", SCHEMA_KEY, SchemaState(at).to_json())
    record(log, REMOVED)
    batches = read(log, "mirror", FeedOptions(batch_rows=1))
    assert [b.kind for b in batches] == [BatchKind.ROWS, BatchKind.ROWS, BatchKind.SCHEMA]
    assert announced(batches) == steps
    # The mirror follows it while its rows are read.
    set_property(log, "shop", SCHEMA_KEY, SchemaState(7).to_json())
    assert announced(read(log, batches[0].cursor)) == steps


def test_live_consumer_gets_rows_with_earlier_offsets_when_they_are_committed(log: SmallChangelog) -> None:
    log.commit(Event(1, 0), Event(2, 5))
    first = read(log, "changelog")
    log.commit(Event(3, 2), restated=Restatement("replay-0:2-3", 2).to_json())
    second = read(log, end(first))
    assert got(second) == [Event(3, 2)]
    log.commit(Event(4, 6))
    log.expire()
    # The cursor is after the replay, so offsets tell what is missing.
    assert got(read(log, end(second))) == [Event(4, 6)]
    with pytest.raises(CursorExpired, match="re-read"):
        read(log, end(first))


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_batches_never_divide_an_event(log: SmallChangelog, most: int) -> None:
    pairs = [Event(i, i, kind=kind, op="u") for i in range(6) for kind in ("UPDATE_BEFORE", "UPDATE_AFTER")]
    log.commit(*pairs)
    batches = read(log, "changelog", FeedOptions(batch_rows=most))
    assert got(batches) == pairs
    sizes = [b.rows.num_rows for b in batches if b.kind is BatchKind.CHANGES]
    assert all(size % 2 == 0 for size in sizes)
    assert max(sizes) <= max(2, most + 1)


events = st.builds(Event, st.integers(0, 9), st.integers(0, 30), st.integers(0, 1))
commits = st.lists(st.lists(events, min_size=1, max_size=12), min_size=1, max_size=5)
reread = st.one_of(st.none(), st.tuples(st.integers(0, 4), st.integers(2, 9)))


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    lists=commits,
    reread=reread,
    batch_rows=st.integers(1, 5),
    sorted_rows=st.integers(1, 8),
    kills=st.lists(st.integers(0, 6), max_size=6),
    start=st.sampled_from(["changelog", "live"]),
)
def test_consumer_that_is_killed_at_any_batch_gets_each_change_once_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    lists: list[list[Event]],
    reread: tuple[int, int] | None,
    batch_rows: int,
    sorted_rows: int,
    kills: list[int],
    start: str,
) -> None:
    with small_changelog(tmp_path_factory.mktemp("log")) as log:
        options = FeedOptions(batch_rows, sorted_rows, settle_seconds=0)
        cursor = log.feed().start("changelog") if start == "live" else None
        wanted, base = [], 0
        for number, found in enumerate(lists):
            # Offsets ascend from commit to commit, and there is one row for each.
            unique = {(e.partition, base + e.offset): replace(e, offset=base + e.offset) for e in found}
            log.commit(*unique.values())
            wanted += sorted(unique.values(), key=lambda e: (e.partition, e.offset))
            base += 31
            if reread is not None and reread[0] == number:
                rows = [Event(i, base - 1, 0, op="h") for i in range(reread[1])]
                log.commit(*rows)
                wanted += rows
        results: list[Event] = []
        cursor = cursor or log.feed().start("changelog")
        for kill in [*kills, None]:
            for i, batch in enumerate(log.feed(options).batches(cursor)):
                if i == kill:
                    break
                if batch.kind is BatchKind.CHANGES:
                    results += events_in([batch.rows])
                cursor = Cursor.from_json(batch.cursor.to_json())
        by_partition = sorted(wanted, key=lambda e: e.partition)
        assert sorted(results, key=lambda e: e.partition) == by_partition
        if start == "live":
            assert results == wanted


def test_rows_of_a_reread_are_divided_and_continued_at_each_batch(log: SmallChangelog) -> None:
    """They have one coordinate, and are more than are sorted at once."""
    rows = [Event(i, 3, op="h") for i in range(9)]
    log.commit(Event(20, 0), Event(21, 3))
    log.commit(*rows)
    log.commit(Event(22, 4))
    options = FeedOptions(batch_rows=2, sorted_rows=2, settle_seconds=0)
    batches = read(log, "changelog", options)
    everything = [Event(20, 0), Event(21, 3), *rows, Event(22, 4)]
    assert got(batches) == everything
    for number in range(1, len(batches)):
        before = got(batches[:number])
        assert got(read(log, batches[number - 1].cursor, options)) == everything[len(before) :]


def test_offsets_continue_after_snapshots_were_deleted(log: SmallChangelog) -> None:
    log.commit(*(Event(i, i) for i in range(4)))
    batches = read(log, "changelog", FeedOptions(batch_rows=1))
    log.commit(Event(8, 8, partition=1), Event(9, 9))
    log.commit(Event(10, 10))
    log.expire()
    new = [Event(9, 9), Event(10, 10), Event(8, 8, partition=1)]
    # Also from a cursor in the middle of the history, whose snapshot is gone.
    for number, batch in enumerate(batches[1:], start=1):
        left = [Event(i, i) for i in range(number, 4)]
        assert got(read(log, batch.cursor)) == [*left, *new]


def test_rows_of_a_mirror_whose_snapshot_was_deleted_are_refused(log: SmallChangelog) -> None:
    log.commit(Event(1, 0), Event(2, 1))
    log.mirror(1, 2)
    first = read(log, "mirror", FeedOptions(batch_rows=1))[0]
    log.mirror(1, 2)
    log.expire()
    with pytest.raises(CursorExpired, match="deleted while its rows were read"):
        read(log, first.cursor)


def convert(log: SmallChangelog) -> None:
    """Give column n of the mirror another type, as a schema change does: the column gets a new id."""
    with log.table("shop").transaction() as transaction:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("n")
        with transaction.update_schema() as update:
            update.add_column("n", StringType())


@pytest.mark.parametrize("noticed_by", ["schema version", "snapshot"])
def test_rows_of_a_mirror_whose_column_was_converted_meanwhile_are_refused(
    log: SmallChangelog, noticed_by: str
) -> None:
    """The rest of the rows would have no values in it."""
    with log.table("shop").update_schema() as update:
        update.add_column("n", IntegerType())
    log.commit(Event(1, 0), Event(2, 1))
    log.mirror(1, 2)
    first = read(log, "mirror", FeedOptions(batch_rows=1))[0]
    convert(log)
    if noticed_by == "schema version":
        with log.table("shop").transaction() as transaction:
            transaction.set_properties({SCHEMA_KEY: SchemaState(5).to_json()})
    else:
        log.mirror(1, 2)
    with pytest.raises(CursorExpired, match=r"converted or dropped while its rows were read: n"):
        read(log, first.cursor)


def test_rows_of_a_mirror_continue_where_they_were_interrupted(log: SmallChangelog) -> None:
    log.commit(*(Event(i, i) for i in range(5)))
    log.mirror(*range(5))
    batches = read(log, "mirror", FeedOptions(batch_rows=2))
    log.commit(Event(7, 7))
    log.mirror(7)
    rest = read(log, batches[0].cursor)
    assert [b.rows.to_pydict() for b in rest if b.kind is BatchKind.ROWS] == [{"id": [2, 3, 4]}]
    assert got(rest) == [Event(7, 7)]


def set_property(log: SmallChangelog, namespace: str, name: str, text: str) -> None:
    with log.table(namespace).transaction() as transaction:
        transaction.set_properties({name: text})


def test_start_waits_until_mirror_and_changelog_agree(log: SmallChangelog) -> None:
    log.commit(Event(1, 0))
    with pytest.raises(Unsettled, match="no rows yet"):
        log.feed().start("mirror")
    log.mirror(1)
    log.commit(Event(2, 0, op="h"), restated=Restatement("reread-1", 2).to_json())
    with pytest.raises(Unsettled, match="lacks changes"):
        log.feed().start("mirror")
    log.mirror(1, 2)
    assert log.feed().start("mirror").scan is None
    set_property(log, "shop", PENDING_FILLS_KEY, "{}")
    with pytest.raises(Unsettled, match="another schema"):
        log.feed().start("mirror")


def test_start_is_refused_while_the_changelog_is_behind(log: SmallChangelog) -> None:
    """A changelog that is switched on later reads the log from its beginning."""
    log.commit(Event(1, 0))
    log.mirror(1)
    further = log.marker.to_json().replace('"next":1', '"next":7')
    set_property(log, "shop", MARKER_KEY, further)
    with pytest.raises(Unsettled, match="different offsets"):
        log.feed().start("mirror")


def test_follower_gets_commits_until_it_is_stopped(log: SmallChangelog) -> None:
    log.commit(Event(1, 0))
    feed = log.feed(FeedOptions(poll_seconds=0.01))
    found: list[Event] = []
    for batch in feed.batches(feed.start("changelog"), follow=True):
        found += got([batch])
        if len(found) < 4 and batch.kind is BatchKind.CHANGES:
            log.commit(Event(len(found), len(found)))
        elif len(found) == 4:
            feed.stop.set()
    assert [e.offset for e in found] == [0, 1, 2, 3]


def test_unknown_table_and_start_are_refused(log: SmallChangelog) -> None:
    log.commit(Event(1, 0))
    feed = log.feed()
    feed.tables.source = "shop.nothing"
    with pytest.raises(UsageError, match="has no changelog"):
        feed.start("changelog")
    with pytest.raises(UsageError, match="cannot start"):
        log.feed().start("yesterday")
    with pytest.raises(UsageError, match="was dropped"):
        read(log, Cursor("shop.orders", "0a-1b"))
