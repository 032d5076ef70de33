"""Pipelines that are paused, as properties of the `_ops` namespace."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from replicator.errors import ReplicatorError
from replicator.lake.catalog.tables import Lake
from replicator.model.common import now_ms
from replicator.model.recorded import Record, records_in

PIPELINE_PAUSED_KEY: Final = "replicator.pipeline-paused."
"""Prefix of the properties that contain why a pipeline is paused, by its name."""


@dataclass(frozen=True, slots=True)
class Pause(Record):
    """Why a pipeline is paused.

    Attributes:
        hint: the next step.
        since_ms: since when, milliseconds since the epoch.
        text: a hash of the file that failed: another one is tried.
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


@dataclass(frozen=True, slots=True)
class Pauses:
    """Records pauses in the lake."""

    lake: Lake
    namespace: str

    def read(self) -> dict[str, Pause]:
        """Return pipeline → why it is paused.

        Raises:
            LakeUnavailable: the catalog failed.
        """
        return pauses_in(self.lake.namespace_properties(self.namespace))

    def pause(self, name: str, error: ReplicatorError, text: str) -> None:
        """Record that a pipeline is paused because of an error; `text` is that of its file."""
        pause = Pause(error.message, error.hint, now_ms(), text_hash(text))
        self.lake.set_namespace_property(self.namespace, PIPELINE_PAUSED_KEY + name, pause.to_json())

    def resume(self, name: str) -> None:
        """Remove what `pause` recorded."""
        self.lake.set_namespace_property(self.namespace, PIPELINE_PAUSED_KEY + name, None)
