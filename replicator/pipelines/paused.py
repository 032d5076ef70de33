"""Why pipelines are paused, as properties of the `_ops` namespace. Without Spark."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from replicator.model.recorded import Record, records_in

PIPELINE_PAUSED_KEY: Final = "replicator.pipeline-paused."
"""Prefix of the properties that contain why a pipeline is paused, by its name."""


@dataclass(frozen=True, slots=True)
class Pause(Record):
    """Why a pipeline is paused.

    Attributes:
        hint: the next step.
        since_ms: since when, milliseconds since the epoch.
        text: a hash of the file that failed: another one is tried. None if it is tried at each refresh.
    """

    WHAT = "the record of a paused pipeline"
    CUT = ("reason", "hint")
    ENDING = "…"
    reason: str
    hint: str | None
    since_ms: int
    text: str | None = None


def text_hash(text: str) -> str:
    """Return a short hash of the text of a file."""
    return sha256(text.encode()).hexdigest()[:16]


def pauses_in(properties: Mapping[str, str]) -> dict[str, Pause]:
    """Return pipeline → why it is paused, of the properties of the `_ops` namespace."""
    return records_in(properties, PIPELINE_PAUSED_KEY, Pause.from_json)
