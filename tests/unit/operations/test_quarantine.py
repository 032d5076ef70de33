"""The records of a replay, from the quarantine and from the log."""

from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest

from replicator.errors import DataLossError, UsageError
from replicator.model.commit_marker import OffsetRange
from replicator.model.quarantine import LogCoordinate, QuarantinedEvent, QuarantineFilter, ReplayResult
from replicator.operations.quarantine import (
    _records,
    drop_quarantined,
    replay_quarantined,
)
from replicator.runner.lock import only_one
from replicator.sources.change_log import RECORDS
from tests.support.config import minimal_config


def event(offset: int, value: bytes | None) -> QuarantinedEvent:
    return QuarantinedEvent(LogCoordinate("t", 1, offset), "shop.orders", 7, 8, "bad", b"k", value)


def test_replay_reads_records_without_payload_from_the_log() -> None:
    def fetch(ranges: list[OffsetRange], _: int) -> dict[str, pa.Table]:
        (r,) = ranges
        if r.start == 3:
            raise DataLossError("gone")
        if r.start == 4:
            return {}  # removed by compaction
        return {"t": pa.table([[1], [r.start], [9], [b"k"], [b"from the log"]], schema=RECORDS)}

    events = [event(1, b"kept"), event(2, None), event(3, None), event(4, None)]
    records, gone = _records(Mock(fetch=fetch), events)
    assert records.schema == RECORDS
    assert list(zip(records["offset"].to_pylist(), records["value"].to_pylist(), strict=True)) == [
        (1, b"kept"),
        (2, b"from the log"),
    ]
    assert [place.offset for place in gone] == [3, 4]
    assert _records(Mock(), [])[0].num_rows == 0


def test_replay_and_drop_are_refused_while_the_mirror_runs(tmp_path: Path) -> None:
    config = minimal_config(tmp_path)
    with only_one(config):
        for call in (
            lambda: drop_quarantined(config, []),
            lambda: replay_quarantined(config, QuarantineFilter()),
        ):
            with pytest.raises(UsageError, match="already running") as caught:
                call()
            # Another name would be another mirror, without these events.
            assert caught.value.hint == "stop that process first"
    assert replay_quarantined(config, QuarantineFilter()) == ReplayResult()
