"""Record how a running mirror compares its rows with the source, and correct those that differ."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from replicator.config import Config
from replicator.errors import ValuesDiffer
from replicator.model.common import counted, now_ms
from replicator.model.compared import COMPARED_KEY, Comparison, comparisons_in
from replicator.model.table import TableId
from replicator.recovery.request import Requests
from replicator.telemetry import get_logger

if TYPE_CHECKING:
    # It loads Arrow's readers, which a mirror that compares nothing does not need.
    from replicator.verify.results import TableResult

_LOG: Final = get_logger("replicator.verify")
_AGAIN_MS: Final = 3_600_000
"""A table that differs again within this time is not corrected again: the cause would go on."""
_CORRECTED: Final = "it is repaired now"


class Differences:
    """What is known of the comparisons of one mirror's tables. Safe for several threads.

    Attributes:
        corrected: tables that were corrected and not compared as a whole since then → whether only rows were found
            that had changed recently, so that there may be more.
        is_unrecorded: whether a difference is not recorded in the lake yet.
    """

    def __init__(self, config: Config, requests: Requests) -> None:
        self._config = config
        self._requests = requests
        self._records: dict[TableId, Comparison] = {}
        self._changed: set[TableId] = set()
        self._is_loaded = False
        self._lock = threading.Lock()
        self.corrected: dict[TableId, bool] = {}
        self.is_unrecorded = False

    def load(self, properties: Mapping[str, str]) -> None:
        """Read what earlier processes recorded in the properties of the `_ops` namespace; once."""
        with self._lock:
            if not self._is_loaded:
                self._records = comparisons_in(properties) | self._records
                self._is_loaded = True

    def take_changed(self) -> dict[str, str]:
        """Return the properties that must be written."""
        with self._lock:
            changed, self._changed, self.is_unrecorded = self._changed, set(), False
            return {COMPARED_KEY + str(table): self._records[table].to_json() for table in sorted(changed)}

    def of(self, table: TableId) -> Comparison:
        """Return what is known of a table."""
        with self._lock:
            return self._records.get(table, Comparison(table))

    def note_rows(self, compared: Mapping[TableId, int]) -> None:
        """Note that rows that had changed recently were compared; `compared` is their number by table."""
        for table, number in compared.items():
            known = self.of(table)
            self._store(replace(known, compared_ms=now_ms(), keys=known.keys + number))

    def note_part(self, table: TableId, upto: tuple[str, ...], rows: int) -> None:
        """Note up to which key a table is compared, and how many rows that are; no key once all of it is."""
        if (known := self.of(table)).upto != upto:
            self._store(replace(known, upto=upto, rows=rows))

    def found(
        self, table: TableId, result: "TableResult", cause: str | None = None, *, is_look: bool = False
    ) -> None:
        """Log and record that rows of a table differ, and correct them or pause the table. For the scheduler's thread.

        `is_look` tells whether only rows were compared that had changed recently.

        Raises:
            LakeUnavailable: that cannot be recorded.
        """
        known, now = self.of(table), now_ms()
        is_same = self.corrected.pop(table, False) and not is_look
        is_again = known.differed_ms is not None and now - known.differed_ms < _AGAIN_MS and not is_same
        found = "; ".join(filter(None, (_described(result), cause)))
        self._store(replace(known, differences=known.differences + 1, differed_ms=now, cause=found))
        self.is_unrecorded = True
        repairs = self._config.verify.on_difference == "repair"
        heal = f"run: replicator heal {table}"
        _LOG.error(
            "the mirror differs from the source",
            table=str(table),
            missing=result.counts.get("missing", 0),  # type: ignore[call-overload]  # kinds are texts
            unexpected=result.counts.get("unexpected", 0),  # type: ignore[call-overload]
            different=result.counts.get("different", 0),  # type: ignore[call-overload]
            position=result.position,
            by=result.by,
            found=found,
            next=(heal if is_again else _CORRECTED)
            if repairs
            else f"run: replicator verify {table} --repair",
        )
        if repairs and is_again:
            self._requests.pause(table, ValuesDiffer(f"its rows differ from the source again: {found}", heal))
        elif repairs:
            from replicator.verify.results import repaired_part  # noqa: PLC0415

            part = repaired_part(result)
            narrowed = {} if part is None else {table: part}
            self._requests.request([table], "verify", self._config.heal.max_rows, narrowed)
            self.corrected[table] = is_look

    def _store(self, record: Comparison) -> None:
        with self._lock:
            self._records[record.table] = record
            self._changed.add(record.table)


def _described(result: "TableResult") -> str:
    """Return what differs, for people."""
    columns = sorted({name for row in result.rows for name in row.columns})
    parts = [f"{counted(number, 'row')} {kind}" for kind, number in result.counts.items()]
    parts += [f"in {', '.join(columns)}"] if columns else []
    return ", ".join([*parts, *(f.text for f in result.schema if f.severity == "different")]) or "no reason"
