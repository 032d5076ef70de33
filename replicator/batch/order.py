"""One batch of one table, from raw records to two commits. The only place where the order of the stages is written.

    read → decode → census → quarantine → evolve → normalize → changelog commit → collapse → apply → mirror commit

The changelog is committed before the mirror: it is the event store, and the mirror can be made again from it. A crash
between the two leaves the mirror behind; the next batch starts where the mirror is and gives the changelog only
what it lacks.
"""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.apply.publish import publish
from replicator.apply.strategy import finish
from replicator.batch.changelog import append_changelog
from replicator.batch.lake_names import rename, renamed_to
from replicator.batch.lake_tables import changelog_table, mirror_table, note_end
from replicator.batch.parts import newest_known, parts
from replicator.batch.projection import apply_to_mirror
from replicator.batch.understand import SchemaFound, unchanged, understood
from replicator.batch.work import Engine, Work, marker_of
from replicator.config import TableOptions
from replicator.errors import (
    TablePaused,
    UnknownPast,
    UnsupportedChange,
)
from replicator.failpoints import reach
from replicator.model.census import Census, joined
from replicator.model.table import TableSchema
from replicator.normalize import good_events
from replicator.observe import Stopwatch


def process(engine: Engine, work: Work, watch: Stopwatch) -> Census:
    """Bring one table up to the end of `work.ranges`, exactly once.

    Where the source's schema changed meanwhile in a way that divides rows before from rows after, each part is
    committed by itself.

    Raises:
        SchemaError: the table cannot go on; nothing of the batch was applied, or only what lies before the change.
        TablePaused: the batch has bad events and the table is configured to pause for them.
        FencedError: another process writes this mirror.
        CommitConflict: something else was committed to the table; try again.
    """
    done = []
    for part in parts(engine, work):
        if part.until is not None and (new := renamed_to(engine, work.table, part.until)) is not None:
            rename(engine, work.table, new)
        try:
            done.append(_process_part(engine, part, watch) if part.ranges else _evolve_only(engine, part))
        except SchemaFound:
            # The events themselves had news.
            done.append(process(engine, replace(part, until=None), watch))
    return done[0] if len(done) == 1 else joined(done)


def process_again(engine: Engine, work: Work, watch: Stopwatch) -> dict[tuple[int, int], str]:
    """Take in events that were in quarantine, `work.records`, which their table has passed. It may be repeated.

    The changelog gets those that it has not. The mirror gets those after which nothing happened to their keys.
    Returns partition and offset of the events that still cannot be applied → the reason.

    Raises:
        SchemaError: the table cannot take them; nothing of them was applied.
        FencedError, CommitConflict: as in `process`.
    """
    try:
        return _again(engine, work, watch)
    except SchemaFound:
        # The events themselves had news: now it is known whether they may be mixed with what the lake has.
        return _again(engine, work, watch)


def _again(engine: Engine, work: Work, watch: Stopwatch) -> dict[tuple[int, int], str]:
    options = engine.config.table(str(work.table))
    if not options.changelog:
        raise UnsupportedChange(
            f"{work.table} has no changelog, and so nothing tells whether its rows changed after these events",
            "make a new snapshot of the table, then drop the events: replicator quarantine drop",
        )
    work = replace(work, until=newest_known(engine, work.table))
    with understood(engine, work, options, watch) as (decoded, found, census):
        rows = decoded.frame.where(F.col("bad").isNotNull()).select("partition", "offset", "bad").collect()
        if census.changes and found is not None and not found.schema.key:
            raise UnsupportedChange(
                f"{work.table} has no key, and so nothing tells whether its rows changed after these events",
                "make a new snapshot of the table, then drop the events: replicator quarantine drop",
            )
        if census.changes and found is not None:
            events = decoded.filtered(good_events(decoded.frame, census.duplicates))
            append_changelog(engine, work, options, found, events, census, alone=False)
            reach("between-commits")
            apply_to_mirror(engine, work, options, found, events, census)
            reach("after-commit")
    return {(row.partition, row.offset): row.bad for row in rows}


def _process_part(engine: Engine, work: Work, watch: Stopwatch) -> Census:
    options = engine.config.table(str(work.table))
    with understood(engine, work, options, watch) as (decoded, found, census):
        if census.bad:
            with watch.stage("quarantine"):
                _set_aside(engine, work, options, decoded.frame)
        if found is None and engine.ledger.progress(work.table).behind is None:
            # Nothing tells yet what the table looks like; the first good event will, and is read with these again.
            return census
        if engine.ledger.progress(work.table).awaits_snapshot(work.topic):
            if not census.changes:
                return census
            _check_beginning(work, census)
        shape = found or unchanged(engine, work, options)
        events = decoded
        if not census.all_to_apply:
            events = decoded.filtered(good_events(decoded.frame, census.duplicates))
        alone = _stands_alone(engine, work, options, shape.schema)
        if options.changelog:
            with watch.stage("changelog"):
                append_changelog(engine, work, options, shape, events, census, alone=alone)
        reach("between-commits")
        if not alone:
            with watch.stage("apply"):
                apply_to_mirror(engine, work, options, shape, events, census)
        reach("after-commit")
        engine.quarantine.settle(work.table, work.ranges, decoded.frame)
    return census


def _evolve_only(engine: Engine, work: Work) -> Census:
    """Give the lake's tables the newest version of the schema where no event came with it."""
    options = engine.config.table(str(work.table))
    shape = unchanged(engine, work, options)
    nothing = Census({}, (), 0, 0, (), {}, None, None)
    progress = engine.ledger.progress(work.table)
    if options.changelog and progress.changelog is not None:
        changelog = changelog_table(engine, work.table, options, shape)
        note_end(engine, work.table, shape.line.gone, changelog)
    if progress.mirror is None:
        return nothing
    table = mirror_table(engine, work.table, options, shape)
    note_end(engine, work.table, shape.line.gone, table)
    staged = finish(engine.lake, table)
    if staged is not None:
        marker = marker_of(engine, work, progress.mirror, nothing)
        publish(engine.lake, table, progress.mirror, marker, staged)
        engine.recent.forget(table)
        engine.ledger.committed_mirror(work.table, marker)
    return nothing


def _check_beginning(work: Work, census: Census) -> None:
    """Raises UnknownPast where a topic that was made anew does not begin with a snapshot."""
    if not census.begins_with_snapshot:
        raise UnknownPast(
            f"{work.topic} was deleted and made anew, and does not begin with a snapshot: what happened to "
            f"{work.table} in between is not in the log",
            "drop the table in the lake, and let the connector take a new snapshot; then start the mirror again",
        )


def _stands_alone(engine: Engine, work: Work, options: TableOptions, schema: TableSchema) -> bool:
    """Whether the table gets a changelog and no mirror, as it is configured to where there is no key.

    Raises:
        UnknownPast: it has a key now, and a changelog of which the log has the beginning no longer at hand.
    """
    progress = engine.ledger.progress(work.table)
    if not schema.columns:
        return progress.mirror is None
    alone = not schema.key and options.keyless == "changelog"
    if progress.stands_alone and not alone:
        raise UnknownPast(
            f"{work.table} has a key now; so far it has a changelog and no mirror",
            f'set keyless = "identity" under [[table]] name = "{work.table}" and start the mirror again: '
            "it is then made from the beginning of the log",
        )
    return alone


def _set_aside(engine: Engine, work: Work, options: TableOptions, decoded: DataFrame) -> None:
    redacted = bool(engine.rules.of(str(work.table)))
    engine.quarantine.add(work.table, work.topic, decoded, work.batch, redacted=redacted)
    if options.on_bad_event == "pause":
        bad = decoded.where(F.col("bad").isNotNull()).select("partition", "offset", "timestamp").collect()
        waiting = set(map(tuple, bad)) - engine.quarantine.dropped(work.topic)
        if waiting:
            raise TablePaused(
                f"{len(waiting)} events of {work.topic} could not be decoded; they are in quarantine",
                "see their reasons with: replicator quarantine list; mend the cause, or drop them there, "
                "and start the mirror again",
                quarantined=len(waiting),
            )
