"""Read what the lake says about a mirror."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from replicator.config import Config
from replicator.lake.properties import PAUSED_KEY, QUARANTINE, RETRYING_KEY, tags_in
from replicator.lake.reading.catalog import namespace_properties
from replicator.lake.reading.metadata_catalog import open_metadata
from replicator.lake.reading.table_metadata import TableMetadata, newest_marker
from replicator.lake.reading.tags import TagStatus, tag_status
from replicator.maintenance.table_reader import (
    TableCondition,
    mirror_tables,
    read_conditions,
    read_namespaces,
)
from replicator.model.compared import (
    ComparedDefinitions,
    Comparison,
    MayDiffer,
    compared_definitions_in,
    comparisons_in,
    may_differ_in,
)
from replicator.model.reread import Request, requests_in
from replicator.model.table import TableId
from replicator.model.verified import CheckHistory, VerifiedTable, histories_in, verified_in
from replicator.operations.status.mirror_status import TableMaintenance
from replicator.pipelines.results import result_tables


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a table is paused or being retried, and what to do.

    `heal_ms` is when the mirror reads the table again by itself, in milliseconds since the epoch; None if it will not,
    or if it does that now.
    """

    reason: str
    hint: str | None
    heal_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LakeState:
    """The state of the lake: tables by name; quarantined events, pauses and failures by source table.

    `unreadable` has, by `namespace.name`, why tables cannot be read.
    """

    mirrors: Mapping[str, TableMetadata] = field(default_factory=dict)
    changelogs: Mapping[str, TableMetadata] = field(default_factory=dict)
    quarantined: Counter[str | None] = field(default_factory=Counter)
    paused: Mapping[str, Trouble] = field(default_factory=dict)
    retrying: Mapping[str, Trouble] = field(default_factory=dict)
    maintenance: tuple[TableMaintenance, ...] = ()
    rereads: tuple[Request, ...] = ()
    tags: tuple[TagStatus, ...] = ()
    verified: tuple[VerifiedTable, ...] = ()
    checks: tuple[CheckHistory, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    comparisons: Mapping[TableId, Comparison] = field(default_factory=dict)
    definitions: ComparedDefinitions | None = None
    may_differ: Mapping[str, MayDiffer] = field(default_factory=dict)


def read_lake(config: Config) -> LakeState:
    if config.lake.is_new:
        # A mirror that has not run yet is a valid state, not an error.
        return LakeState()
    with open_metadata(config.lake) as catalog:
        unreadable: dict[str, str] = {}
        namespaces = read_namespaces(config, catalog, unreadable, result_tables(config))
        changelogs = namespaces[config.lake.changes_namespace]
        mirrors = namespaces[config.lake.namespace]
        alone = {
            name: table
            for name, table in changelogs.items()
            if name not in mirrors and (found := newest_marker(table)) is not None and found.alone
        }
        names = result_tables(config, changelogs=False)
        results = [
            table for space, name in names if (table := namespaces.get(space, {}).get(name)) is not None
        ]
        properties = namespace_properties(catalog, config.lake.ops_namespace)
        return LakeState(
            {**mirrors, **alone},
            changelogs,
            _quarantined(config, namespaces[config.lake.ops_namespace].get(QUARANTINE)),
            _troubles(properties, PAUSED_KEY),
            _troubles(properties, RETRYING_KEY),
            tuple(map(_maintenance, read_conditions(config, list(mirror_tables(config, namespaces))))),
            tuple(requests_in(properties)),
            tag_status(tags_in(properties), mirrors.values(), results),
            tuple(verified_in(properties)),
            tuple(histories_in(properties)),
            unreadable,
            comparisons_in(properties),
            compared_definitions_in(properties),
            may_differ_in(properties),
        )


def _maintenance(found: TableCondition) -> TableMaintenance:
    facts, runs = found.facts, sorted(found.runs.items())
    return TableMaintenance(
        table=str(found.target),
        source=found.target.source,
        data_files=facts.data_files,
        delete_files=facts.delete_files,
        bytes=facts.bytes,
        snapshots=len(facts.snapshot_ms),
        metadata_bytes=found.metadata_bytes,
        maintained_ms=max((run.ms for _, run in runs), default=None),
        steps={str(step): run.ms for step, run in runs},
        due=tuple(map(str, found.due)),
        overdue=tuple(map(str, found.overdue)),
        equality_delete_files=found.equality_files,
        equality_deletes=facts.equality_deletes,
    )


def _quarantined(config: Config, table: TableMetadata | None) -> Counter[str | None]:
    """Return the number of unresolved quarantined events by source table; None for events without a table."""
    if table is None or not table.total("total-records"):
        return Counter()
    # Rows are read with PyIceberg, which takes a second to import; most mirrors have no quarantined events.
    from replicator.lake.reading.quarantine import unresolved_by_table  # noqa: PLC0415

    return unresolved_by_table(config)


def _troubles(properties: Mapping[str, str], prefix: str) -> dict[str, Trouble]:
    """Return the contents of the properties with this prefix, by source table."""
    return {
        key.removeprefix(prefix): Trouble(found["reason"], found.get("hint"), found.get("heal_ms"))
        for key, value in sorted(properties.items())
        if key.startswith(prefix) and (found := json.loads(value))
    }
