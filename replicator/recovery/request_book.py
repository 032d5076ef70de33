"""The requests of a mirror in the lake: properties of the `_ops` namespace, so that they survive a kill.

Any process can make one, and the mirror carries it out.
"""

import time
from typing import Final

from replicator.batch import MirrorContext
from replicator.model.reread import REREAD_KEY, Request, requests_in
from replicator.model.table import TableId

_POLL_S: Final = 2.0
"""How often the lake is asked for new requests."""


class RequestBook:
    """The newest request of each table, as far as it was read or recorded. All methods may raise LakeUnavailable."""

    def __init__(self, context: MirrorContext) -> None:
        self._context = context
        self._newest: dict[TableId, Request] | None = None
        self._read_at = -_POLL_S

    @property
    def is_read(self) -> bool:
        """Whether the requests of earlier processes are known."""
        return self._newest is not None

    @property
    def is_due(self) -> bool:
        """Whether the lake should be asked again."""
        return time.monotonic() >= self._read_at + _POLL_S

    def read(self) -> list[Request]:
        """Return the newest requests in the lake that have not ended."""
        self._read_at = time.monotonic()
        properties = self._context.lake.namespace_properties(self._context.config.lake.ops_namespace)
        self._newest = {request.table: request for request in requests_in(properties)}
        return [request for request in self._newest.values() if not request.has_ended]

    def newest(self, table: TableId) -> Request | None:
        """Return the newest request of a table, also if it has ended."""
        return (self._newest or {}).get(table)

    def record(self, request: Request) -> None:
        """Write a request to the lake."""
        self._newest = {**(self._newest or {}), request.table: request}
        self._context.lake.set_namespace_property(
            self._context.config.lake.ops_namespace, REREAD_KEY + str(request.table), request.to_json()
        )
