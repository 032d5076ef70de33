"""Reads the schema-change topic for a mirror, with every batch and between batches."""

import time
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from replicator.batch import MirrorContext
from replicator.errors import LakeUnavailable
from replicator.jvm.spark import first_line
from replicator.model.events import BadRecord
from replicator.runner.summary import RunTotals
from replicator.runner.table_states import TableStates
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.runner")
_INTERVAL_S: Final = 5.0
"""How often the topic is read without events that would start a batch."""


class SchemaTopic:
    """The statements of the schema-change topic, as far as the mirror has read and followed them."""

    def __init__(self, context: MirrorContext, tables: TableStates, totals: RunTotals) -> None:
        self._context = context
        self._tables = tables
        self._totals = totals
        self._bad_records: list[BadRecord] = []
        self._followed, self._due = 0, time.monotonic() + _INTERVAL_S

    def read(self) -> None:
        """Update the schema tracker. Records that cannot be read are quarantined, and stop no table.

        Raises:
            LogError, LakeError: what all tables need is unavailable.
        """
        # Kept until they are quarantined: if that fails, they are not read from the log again.
        self._bad_records += self._context.schemas.add_schema_changes(self._context.log.schema_changes())
        self._tables.notice_definitions()
        if not self._bad_records:
            return
        try:
            added = self._context.quarantine.add_records(self._bad_records, self._totals.batches + 1)
        except (PySparkException, Py4JJavaError, LakeUnavailable) as error:
            self._tables.probe_lake()
            # The lake answers, so only the quarantine table fails. The records are kept, and no table has to wait.
            _LOG.error("schema changes cannot be quarantined, retrying", reason=first_line(error))
            return
        for bad in added:
            record = bad.record
            _LOG.warning(
                "a schema change cannot be read and was quarantined",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                reason=bad.reason,
            )
            self._totals.quarantined += 1
        self._bad_records = []

    def follow(self) -> None:
        """Read the topic for a batch, which follows all statements that are known then."""
        self.read()
        self._followed = self._context.schemas.revision

    def has_more(self) -> bool:
        """Read the topic from time to time; return whether it has statements that no batch has followed."""
        return time.monotonic() >= self._due and self.has_new()

    def has_new(self) -> bool:
        """Read the topic, and return whether it has statements that no batch has followed."""
        self._due = time.monotonic() + _INTERVAL_S
        self.read()
        return self._context.schemas.revision != self._followed
