"""What a running mirror records of the comparisons that it makes by itself, for each table."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from replicator.model.property_json import fitted_json
from replicator.model.recorded import record_in, recorded
from replicator.model.table import TableId

COMPARED_KEY: Final = "replicator.compared."
"""Prefix of the properties of the `_ops` namespace that each contain the comparisons of a table."""
_TEXT: Final = 300


@dataclass(frozen=True, slots=True)
class Comparison:
    """How rows of a table were compared with the source.

    It is a property of the `_ops` namespace, described in schemas/compared-v1.json.

    Attributes:
        compared_ms: when rows that had changed recently were last compared, milliseconds since the epoch; None: never.
        keys: number of rows that had changed recently and were compared so far.
        differences: how often rows differed.
        differed_ms: when they last did.
        cause: what differed then, and why, as far as that is known.
        upto: the key at which the comparison of the whole table goes on, as texts; empty if it has not begun.
        rows: number of rows before that key that were compared.
    """

    table: TableId
    compared_ms: int | None = None
    keys: int = 0
    differences: int = 0
    differed_ms: int | None = None
    cause: str | None = None
    upto: tuple[str, ...] = ()
    rows: int = 0

    def values(self) -> dict[str, Any]:
        """Return it as plain values, for programs."""
        return {
            "version": 1,
            "database": self.table.database,
            "name": self.table.name,
            "compared_ms": self.compared_ms,
            "keys": self.keys,
            "differences": self.differences,
            "differed_ms": self.differed_ms,
            "cause": self.cause,
            "upto": list(self.upto),
            "rows": self.rows,
        }

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return fitted_json(self.values(), ("cause",), most=_TEXT, ending="…")

    @classmethod
    @recorded("the record of comparisons")
    def from_json(cls, text: str) -> "Comparison":
        """Read what `to_json` wrote.

        Raises:
            ValueError: the text is not a record of this version.
        """
        value = record_in(text)
        if value.get("version") != 1:
            raise ValueError("record of comparisons: unknown version")
        return cls(
            TableId(value["database"], value["name"]),
            value["compared_ms"],
            value["keys"],
            value["differences"],
            value["differed_ms"],
            value["cause"],
            tuple(value["upto"]),
            value["rows"],
        )


def comparisons_in(properties: Mapping[str, str]) -> dict[TableId, Comparison]:
    """Return the comparisons in the properties of the `_ops` namespace that this version can read."""
    found = {}
    for key, value in properties.items():
        if key.startswith(COMPARED_KEY):
            with suppress(ValueError):
                record = Comparison.from_json(value)
                found[record.table] = record
    return found
