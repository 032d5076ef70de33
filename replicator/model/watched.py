"""What is recorded of how far a mirror has watched the source's binlog."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from replicator.model.recorded import record_in, recorded

WATCHED_KEY: Final = "replicator.watched"
"""Property of the `_ops` namespace: up to where the source's binlog was watched."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Up to where the binlog of a server was watched; described in schemas/watched-v1.json.

    Attributes:
        server: UUID of the server.
        file, pos: where watching must begin again: at the oldest transaction whose outcome was not known.
        done_file, done_pos: all that ends up to here was dealt with.
        gtids: transactions that were dealt with for certain, by which another server can be watched; None if unknown.
    """

    server: str
    file: str
    pos: int
    done_file: str
    done_pos: int
    gtids: str | None = None

    def values(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "version": 1,
            "server": self.server,
            "file": self.file,
            "pos": self.pos,
            "done_file": self.done_file,
            "done_pos": self.done_pos,
            "gtids": self.gtids,
        }

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(self.values())

    @classmethod
    @recorded("the record of the watched binlog")
    def from_json(cls, text: str) -> "Watched":
        """Read what `to_json` wrote.

        Raises:
            ValueError: the text is not of this version.
        """
        value = record_in(text)
        if value.get("version") != 1:
            raise ValueError(f"watched binlog: unknown version {value.get('version')!r}")
        return cls(
            value["server"],
            value["file"],
            value["pos"],
            value["done_file"],
            value["done_pos"],
            value["gtids"],
        )


def watched_in(properties: Mapping[str, str]) -> Watched | None:
    """Return what the properties of the `_ops` namespace say; None if nothing that this version can read."""
    try:
        return Watched.from_json(properties[WATCHED_KEY])
    except (KeyError, ValueError):
        return None
