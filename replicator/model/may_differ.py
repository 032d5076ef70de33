"""What is recorded of tables whose rows may differ from the source, until a comparison or a re-read shows more."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from replicator.model.position import binlog_number
from replicator.model.recorded import record_in, recorded
from replicator.model.reread import Phase, Request
from replicator.model.verified import VerifiedTable

MAY_DIFFER_KEY: Final = "replicator.may-differ."
"""Prefix of the properties of the `_ops` namespace that each tell of a table why its rows may differ."""


@dataclass(frozen=True, slots=True)
class MayDiffer:
    """A transaction that may have changed rows of a table without events, and that the mirror does not follow.

    Attributes:
        reason: what it was.
        file, pos: the place in the binlog after it.
        noted_ms: when it was noted, milliseconds since the epoch.
    """

    reason: str
    file: str
    pos: int
    noted_ms: int

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps({"version": 1, **asdict(self)})

    @classmethod
    @recorded("the record of rows that may differ")
    def from_json(cls, text: str) -> "MayDiffer":
        """Read what `to_json` wrote.

        Raises:
            ValueError: the text is not a record of this version.
        """
        value = record_in(text)
        if value["version"] != 1:
            raise ValueError("record of rows that may differ: unknown version")
        binlog_number(value["file"])
        return cls(value["reason"], value["file"], value["pos"], value["noted_ms"])

    def is_settled(self, check: VerifiedTable | None, reread: Request | None) -> bool:
        """Return whether the newest check, or the newest re-read, of the table shows that its rows are the source's."""
        done = reread is not None and reread.phase is Phase.DONE and reread.requested_ms >= self.noted_ms
        if reread is not None and done and reread.narrowed is None:
            return True
        if check is None or check.sampled or not self._is_before(check):
            return False
        if check.verdict == "equal":
            return True
        repaired = reread is not None and done and reread.requested_ms >= check.ended_ms
        return repaired and reread is not None and (reread.changed or 0) >= check.differing

    def _is_before(self, check: VerifiedTable) -> bool:
        """Return whether a check compared all rows later; one in parts, without offsets, began at another place."""
        if check.topic_id is not None and not check.offsets:
            return False
        file, _, pos = check.position.partition("/")[0].rpartition(":")
        try:
            return (binlog_number(file), int(pos)) >= (binlog_number(self.file), self.pos)
        except ValueError:
            return False


def may_differ_in(properties: Mapping[str, str]) -> dict[str, MayDiffer]:
    """Return what the properties of the `_ops` namespace say, by source table, as far as this version can read it."""
    found = {}
    for key, value in properties.items():
        if key.startswith(MAY_DIFFER_KEY):
            with suppress(ValueError):
                found[key.removeprefix(MAY_DIFFER_KEY)] = MayDiffer.from_json(value)
    return found
