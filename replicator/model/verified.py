"""What is recorded of the checks of a mirror: the newest one of each table, and some earlier ones."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from replicator.model.recorded import Record, records_in
from replicator.model.table import TableId

VERIFIED_KEY: Final = "replicator.verified."
"""Prefix of the properties of the `_ops` namespace that each contain the newest check of a table."""
CHECKS_KEY: Final = "replicator.checks."
"""Prefix of the properties of the `_ops` namespace that each contain the past checks of a table, without the newest."""
_VALUE: Final = 1_000
"""Maximum length of a property: catalogs in a database store no more characters of it."""


@dataclass(frozen=True, slots=True)
class VerifiedTable(Record):
    """The newest check of a table.

    It is a property of the `_ops` namespace, described in schemas/verified-v1.json.

    Attributes:
        verdict: equal, different or undecided.
        position: the binlog position before which all changes were compared.
        ended_ms: when it ended, milliseconds since the epoch.
        rows: number of rows of the source that were checked.
        differing: number of rows that differ, as far as they were counted.
        sampled: whether only a part of the rows was checked.
        reason: why it is undecided.
        offsets: partition → the first offset of the table's topic that the mirror lacked when the check began; a later
            check of changed keys begins there.
        topic_id: the id of the topic.
    """

    WHAT = "the record of a check"
    CUT = ("reason",)
    table: TableId
    verdict: str
    position: str
    ended_ms: int
    rows: int
    differing: int
    sampled: bool = False
    reason: str | None = None
    offsets: Mapping[int, int] = field(default_factory=dict)
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class PastCheck:
    """A check of a table that a newer one followed; the attributes are those of `VerifiedTable`."""

    verdict: str
    position: str
    ended_ms: int
    rows: int
    differing: int
    sampled: bool = False

    @classmethod
    def of(cls, check: VerifiedTable) -> "PastCheck":
        """Return what is kept of a check once a newer one follows."""
        return cls(check.verdict, check.position, check.ended_ms, check.rows, check.differing, check.sampled)


@dataclass(frozen=True, slots=True)
class CheckHistory(Record):
    """The past checks of a table, the latest first, without the newest check.

    It is a property of the `_ops` namespace, described in schemas/checks-v1.json. It has as many as fit: about 8.
    """

    WHAT = "the record of past checks"
    table: TableId
    checks: tuple[PastCheck, ...] = ()

    def followed(self, check: VerifiedTable) -> "CheckHistory":
        """Return the history once a newer check follows `check`."""
        return replace(self, checks=(PastCheck.of(check), *self.checks))

    def to_json(self) -> str:
        """Return it as one line of JSON, without the oldest checks if a property cannot contain all."""
        text = json.dumps(self.values(), separators=(",", ":"))
        if len(text) <= _VALUE or not self.checks:
            return text
        return replace(self, checks=self.checks[:-1]).to_json()


def proved_ms(newest: VerifiedTable | None, history: CheckHistory | None) -> int | None:
    """Return when all rows of a table were last found equal, milliseconds since the epoch; None if no check says so."""
    checks: list[VerifiedTable | PastCheck] = [] if newest is None else [newest]
    checks += [] if history is None else history.checks
    return next((c.ended_ms for c in checks if c.verdict == "equal" and not c.sampled), None)


def check_records(properties: Mapping[str, str], checks: Sequence[VerifiedTable]) -> dict[str, str]:
    """Return the properties that record new checks, and the checks that they follow.

    `properties` are those of the `_ops` namespace.
    """
    newest = {check.table: check for check in verified_in(properties)}
    histories = {history.table: history for history in histories_in(properties)}
    records = {}
    for check in checks:
        name = str(check.table)
        records[VERIFIED_KEY + name] = check.to_json()
        if (former := newest.get(check.table)) is not None:
            history = histories.get(check.table, CheckHistory(check.table))
            records[CHECKS_KEY + name] = history.followed(former).to_json()
    return records


def verified_in(properties: Mapping[str, str]) -> list[VerifiedTable]:
    """Return the checks in the properties of the `_ops` namespace that this version can read, by table."""
    found = records_in(properties, VERIFIED_KEY, VerifiedTable.from_json).values()
    return sorted(found, key=lambda check: check.table)


def histories_in(properties: Mapping[str, str]) -> list[CheckHistory]:
    """Return the past checks in the properties of the `_ops` namespace that this version can read, by table."""
    found = records_in(properties, CHECKS_KEY, CheckHistory.from_json).values()
    return sorted(found, key=lambda history: history.table)
