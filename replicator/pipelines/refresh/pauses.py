"""Record in the lake which pipelines are paused."""

from dataclasses import dataclass

from replicator.errors import ReplicatorError
from replicator.lake.catalog.tables import Lake
from replicator.model.common import now_ms
from replicator.pipelines.paused import PIPELINE_PAUSED_KEY, Pause, pauses_in, text_hash


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

    def pause(self, name: str, error: ReplicatorError, text: str | None) -> None:
        """Record that a pipeline is paused because of an error.

        It stays so while its file has this text; without one, until it can be refreshed.
        """
        pause = Pause(error.message, error.hint, now_ms(), None if text is None else text_hash(text))
        self.lake.set_namespace_property(self.namespace, PIPELINE_PAUSED_KEY + name, pause.to_json())

    def resume(self, name: str) -> None:
        """Remove what `pause` recorded."""
        self.lake.set_namespace_property(self.namespace, PIPELINE_PAUSED_KEY + name, None)
