"""Why log tables are paused, as properties of the `_ops` namespace. Without Spark."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from replicator.model.recorded import Record, records_in

LOG_TABLE_PAUSED_KEY: Final = "replicator.log-table-paused."
"""Prefix of the properties that contain why a log table is paused, by its name."""


@dataclass(frozen=True, slots=True)
class LogPause(Record):
    """Why a log table is paused.

    Attributes:
        hint: the next step.
        since_ms: since when, milliseconds since the epoch.
    """

    WHAT = "the record of a paused log table"
    CUT = ("reason", "hint")
    ENDING = "…"
    reason: str
    hint: str | None
    since_ms: int


def log_pauses_in(properties: Mapping[str, str]) -> dict[str, LogPause]:
    """Return table → why it is paused, of the properties of the `_ops` namespace."""
    return records_in(properties, LOG_TABLE_PAUSED_KEY, LogPause.from_json)
