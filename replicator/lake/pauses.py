"""Record in the lake which log tables or pipelines are paused."""

from dataclasses import dataclass

from replicator.errors import ReplicatorError
from replicator.lake.catalog.tables import Lake
from replicator.lake.properties import Pause, pauses_in
from replicator.model.common import now_ms


@dataclass(frozen=True, slots=True)
class Pauses:
    """Records pauses in the namespace `_ops`, as properties whose names begin with `prefix`."""

    lake: Lake
    namespace: str
    prefix: str

    def read(self) -> dict[str, Pause]:
        """Return name → why it is paused.

        Raises:
            LakeUnavailable: the catalog failed.
        """
        return pauses_in(self.lake.namespace_properties(self.namespace), self.prefix)

    def pause(self, name: str, error: ReplicatorError, text: str | None = None) -> Pause:
        """Record that one is paused because of an error, and of a file with the hash `text`; return the record."""
        pause = Pause(error.message, error.hint, now_ms(), text)
        self.lake.set_namespace_property(self.namespace, self.prefix + name, pause.to_json())
        return pause

    def resume(self, name: str) -> None:
        """Remove what `pause` recorded."""
        self.lake.set_namespace_property(self.namespace, self.prefix + name, None)
