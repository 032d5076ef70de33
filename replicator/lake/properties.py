"""Names of properties of lake tables and the `_ops` namespace, and records in them. Persisted: they must not change."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from replicator.errors import LakeUnavailable
from replicator.model.recorded import UNLESS_NONE, Record, reading, records_in, texts_in
from replicator.model.tags import TagRecord, recorded_tags

QUARANTINE: Final = "quarantine"
"""The table in `_ops` with the events that could not be decoded or applied."""

PIPELINE_CHECKS: Final = "pipeline_checks"
"""The table in `_ops` with what the checks of pipelines counted; described in docs/how-to/pipelines.md."""

CREATED_KEY: Final = "replicator.created-in"
"""Property of a table: the location at which the mirror created it. Tables of earlier versions lack it."""

PAUSED_KEY: Final = "replicator.paused."
"""Prefix of the properties that contain why a table is paused, by source table."""

LOG_TABLE_PAUSED_KEY: Final = "replicator.log-table-paused."
"""The same for log tables, by their names."""

PIPELINE_PAUSED_KEY: Final = "replicator.pipeline-paused."
"""The same for pipelines."""

RETRYING_KEY: Final = "replicator.retrying."
"""Prefix of the properties that contain why a table failed, if it is retried, by source table."""

LEFT_OUT_KEY: Final = "replicator.left-out."
"""Prefix of the properties that contain since when the configuration leaves out a mirrored table, by source table."""

REWIND_KEY: Final = "replicator.rewind."
"""Prefix of the properties that tell whose lost events earlier versions let the connector send again, by table."""

PURGING_KEY: Final = "replicator.purging."
"""Prefix of the properties that each contain a folder of a dropped table whose files must still be deleted."""

_HASH_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class Pause(Record):
    """Why a log table or a pipeline is paused.

    Attributes:
        hint: the next step.
        since_ms: since when, milliseconds since the epoch.
        text: a hash of the pipeline's file that failed: another one is tried. None if it is tried at each refresh.
    """

    WHAT = "the record of a pause"
    CUT = ("reason", "hint")
    ENDING = "…"
    reason: str
    hint: str | None
    since_ms: int
    text: Annotated[str | None, UNLESS_NONE] = None


def pauses_in(properties: Mapping[str, str], prefix: str) -> dict[str, Pause]:
    """Return name → why it is paused, of the properties of the `_ops` namespace whose names begin with `prefix`."""
    return records_in(properties, prefix, Pause.from_json)


def text_hash(text: str) -> str:
    """Return a short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def purge_record(source: str, folder: str) -> tuple[str, str]:
    """Return the property, name and value, that records a folder of a source table."""
    # Catalogs limit the length of names, so the folder itself is part of the value.
    key = PURGING_KEY + text_hash(folder)
    return key, json.dumps({"table": source, "folder": folder})


def recorded_purges(properties: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return source table → folders that an interrupted drop has recorded. Raises ValueError if a record is none."""
    found: dict[str, tuple[str, ...]] = {}
    for key, text in sorted(properties.items()):
        if key.startswith(PURGING_KEY):
            with reading("the record of a dropped table"):
                record = texts_in(text)
                found[record["table"]] = (*found.get(record["table"], ()), record["folder"])
    return found


def tags_in(properties: Mapping[str, str]) -> list[TagRecord]:
    """Return the tags that properties of the `_ops` namespace describe, oldest first.

    Raises:
        LakeUnavailable: a newer version of the engine wrote one.
    """
    try:
        return recorded_tags(properties)
    except (ValueError, KeyError) as error:
        raise LakeUnavailable(str(error), "use the version of replicator that wrote it") from error
