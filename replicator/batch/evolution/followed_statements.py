"""Decide which statements that removed rows without events the lake tables follow, with the policy `follow`.

A statement is followed if the definition of the table tells which rows it removed (`SchemaVersion.removed`), and if
the mirror certainly has the rows, and the values, that the source had before it. The changelog is written first, and
records the decision; the mirror does what is recorded there, so that both agree also after a crash.
"""

from collections.abc import Mapping
from dataclasses import replace

from replicator.batch.context import MirrorContext
from replicator.batch.state.partition_counts import number_of
from replicator.batch.values import BatchSchema, TableBatch
from replicator.config import TableOptions
from replicator.errors import UnloggedChange, UnsupportedChange
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.files.spark_tables import rows_of
from replicator.model.recorded_rules import RULES_KEY, rules_from_json
from replicator.model.table import TableId
from replicator.schema.evolution.changes import FOLLOWED_KEY, SchemaState
from replicator.schema.evolution.own_columns import is_temporary
from replicator.schema.evolution.plan import LakeSide, follows_rows, heals_rows
from replicator.schema.evolution.steps import STEPS_KEY, SchemaSteps
from replicator.schema.history.order import VersionStart
from replicator.schema.history.partitions import PartitionCondition, RowCondition
from replicator.schema.history.versions import BEGINNING, GENERATION_SHIFT, SchemaHistory, SchemaVersion


def rows_to_delete(
    context: MirrorContext,
    table: TableId,
    options: TableOptions,
    schema: BatchSchema,
    known: SchemaState,
    *,
    follows: bool = True,
) -> dict[int, RowCondition]:
    """Return `at` of each version after `known` whose statement is followed → the rows that it removed.

    The columns of a condition have their names in that version. Without `follows`, only statements of which that was
    decided before are followed.
    """
    news = [
        (index, version)
        for index, version in enumerate(schema.history.versions[: schema.version_index + 1])
        if version.at > known.at and version.unlogged is not None and version.removed is not None
    ]
    if not news:
        return {}
    lake, config = context.lake, context.config.lake
    changelog = lake.load(config.changes_namespace, table.name) if options.changelog else None
    state = None if changelog is None else changelog.schema_state()
    decided, decided_at = _recorded(changelog), BEGINNING if state is None else state.at
    mirror = lake.load(config.namespace, table.name)
    found: dict[int, RowCondition] = {}
    for index, version in news:
        if version.at <= decided_at:
            rows = decided.get(version.at)
        elif follows and follows_rows(options.schema_changes) and mirror is not None:
            rows = _rows(context, mirror, options, schema.history, index)
        else:
            rows = None
        if rows is not None:
            found[version.at] = rows
    return found


def in_lake_columns(
    removed: Mapping[int, RowCondition], history: SchemaHistory, known: SchemaState, lake: LakeSide
) -> dict[int, RowCondition]:
    """Return `removed` with the names that the columns have in a lake table in state `known`."""
    found: dict[int, RowCondition] = {}
    for at, rows in removed.items():
        index = history.index_at(at)
        names = {now: name for name, now in history.carry_lake(known.at, index, lake.live).items()}
        found[at] = replace(rows, columns=tuple(names.get(name, name) for name in rows.columns))
    return found


def refuse_late_events(batch: TableBatch) -> None:
    """Check that no event is from before the newest statement that the mirror has followed: its row may be removed.

    The definition of a statement may arrive before events from before it, because it comes by another topic; so do
    events that were quarantined. `batch` has its lake tables.

    Raises:
        UnloggedChange, UnsupportedChange: there is such an event, or may be one; no event was applied.
    """
    text = None if batch.mirror is None else batch.mirror.property(FOLLOWED_KEY)
    if text is None or not batch.stats.changes:
        return
    at, history = int(text), batch.schema.history
    found = next((v for v in history.versions if v.at == at), None)
    start = VersionStart(at & ((1 << GENERATION_SHIFT) - 1)) if found is None else found.start
    earliest = batch.stats.earliest
    if earliest is not None and start.is_before(earliest.position, earliest.ts_ms):
        return
    kind = UnloggedChange if heals_rows(batch.options.schema_changes) else UnsupportedChange
    raise kind(
        f"events of {batch.task.table} from before its partitions were dropped or truncated arrived after that",
        "read the table again: replicator heal DATABASE.TABLE",
    )


def _recorded(changelog: LakeTable | None) -> Mapping[int, RowCondition]:
    """Return `at` of each statement that the changelog follows → the rows that it removed."""
    text = None if changelog is None else changelog.property(STEPS_KEY)
    steps = () if text is None else SchemaSteps.from_json(text).steps
    return {step.at: step.removed for step in steps if step.removed is not None}


def _rows(
    context: MirrorContext, mirror: LakeTable, options: TableOptions, history: SchemaHistory, index: int
) -> RowCondition | None:
    """Return the rows that the statement of version `index` removed; None if it is not followed.

    It is followed if the mirror certainly has what the source had before it.
    """
    version, state = history.versions[index], mirror.schema_state()
    if version.removed is None or state is None or state.at >= version.at:
        return None
    name = _lake_name(mirror, options, history, index, version.removed, state)
    if name is None or not _has_rows_before(context, mirror, version):
        return None
    if (uncertain := version.removed.uncertain) is not None and not mirror.is_empty:
        rows = rows_of(context.lake, mirror)
        if not rows.where(replace(uncertain, columns=(name,)).of_columns()).isEmpty():
            return None
    return version.removed.rows


def _lake_name(
    mirror: LakeTable,
    options: TableOptions,
    history: SchemaHistory,
    index: int,
    removed: PartitionCondition,
    state: SchemaState,
) -> str | None:
    """Return the mirror's column of a condition; None if its rows may lack the values that the source has."""
    types = {n: t for n, t in mirror.engine_columns().items() if not is_temporary(n)}
    live = [name for name in types if name not in state.retired]
    names = {now: name for name, now in history.carry_lake(state.at, index, live).items()}
    other = {*rules_from_json(mirror.property(RULES_KEY)), *mirror.pending_fills(), *mirror.unfilled()}
    name = names.get(removed.column)
    if name is None or name in other or types[name].name not in removed.lake_types:
        return None
    renames_ignored = options.schema_changes.get("rename") == "ignore" or any(
        line.startswith("ignored: rename") for note in state.notes for line in note.changes
    )
    return None if renames_ignored else name


def _has_rows_before(context: MirrorContext, mirror: LakeTable, version: SchemaVersion) -> bool:
    """Return whether a mirror has all events from before the statement of a version, and none from after it.

    The order between several partitions of a topic is not known. The definition may have come after events that
    were applied already.
    """
    marker = mirror.marker()
    if marker is None or mirror.pending_clear() is not None or len(marker.progress) > 1:
        return False
    for topic, progress in marker.progress.items():
        count = marker.partition_counts.get(topic) or context.partition_counts.first(topic)
        if count is None and not context.log.grows:
            # An archive does not list partitions without events.
            count = number_of({*progress, *context.log.offsets()[1].get(topic, ())})
        if count != 1:
            return False
    if marker.position is None:
        return False
    return not version.start.is_before(marker.position, marker.watermark_ms or 0)
