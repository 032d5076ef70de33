"""Remembers at which positions the connector read all definitions again only to rebuild its schema history.

Its snapshot has no rows then, and it continues where it had ended. Only whoever requested it knows that.
"""

import json
from typing import Final

from replicator.lake.catalog.tables import Lake
from replicator.model.position import SourcePosition
from replicator.model.recorded import names_in, reading
from replicator.schema.history.versions import TableDefinition

RECOVERED_KEY: Final = "replicator.recovered-at"
"""Property of the `_ops` namespace: the positions, as a JSON list of ``file:offset``."""
KNOWN_KEY: Final = "replicator.snapshots-known"
"""Property of the same, of earlier versions of the engine: until when (ms) they had treated all snapshots."""
_KEPT: Final = 100


class Recoveries:
    """The positions of one mirror. They are read from the lake when they are needed first."""

    def __init__(self, lake: Lake, namespace: str) -> None:
        self._lake = lake
        self._namespace = namespace
        self._positions: list[str] | None = None
        self._known_ms = 0

    def add(self, position: SourcePosition) -> None:
        """Record where the connector will read the definitions again.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        found = [*self._recorded(), _text(position)][-_KEPT:]
        self._lake.set_namespace_property(self._namespace, RECOVERED_KEY, json.dumps(found))
        self._positions = found

    def has(self, definition: TableDefinition) -> bool:
        """Return whether a snapshot read a definition for that purpose only.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        return _text(definition.position) in self._recorded() or definition.ts_ms <= self._known_ms

    def _recorded(self) -> list[str]:
        if self._positions is None:
            properties = self._lake.namespace_properties(self._namespace)
            with reading("the record of recoveries"):
                self._known_ms = int(properties.get(KNOWN_KEY, "0"))
                self._positions = [*names_in(properties.get(RECOVERED_KEY, "[]"))]
        return self._positions


def _text(position: SourcePosition) -> str:
    return f"{position.file}:{position.pos}"
