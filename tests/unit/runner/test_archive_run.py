"""An archive is applied in chunks, to its end, until no table waits for a retry."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from replicator.errors import ConfigError
from replicator.model.commit_marker import OffsetRange
from replicator.runner.archive_run import apply_archive, open_archive
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.config import minimal_config


def archive_scheduler(chunks: Sequence[tuple[OffsetRange, ...]], ends: Any) -> Any:
    scheduler: Any = Mock(stopping=threading.Event(), failing=False)
    scheduler.check_log.return_value = ({"t": {0: 0}}, ends)
    scheduler.unread_chunks.return_value = chunks
    scheduler.tables.mirrored.return_value = {}
    return scheduler


def test_apply_archive_retries_until_no_table_fails() -> None:
    scheduler = archive_scheduler([], {"t": {0: 9}})
    scheduler.failing = True

    def advance(ends: Any, _on_events: Any, **_: Any) -> None:
        assert ends == {"t": {0: 9}}
        scheduler.failing = scheduler.advance.call_count < 2

    scheduler.advance.side_effect = advance
    apply_archive(scheduler)
    assert scheduler.advance.call_count == 2
    assert scheduler.await_retry.call_count == 1


def test_apply_archive_reports_the_events_of_all_chunks() -> None:
    chunks = [(OffsetRange("t", 0, 3, 5), OffsetRange("t", 1, 0, 1)), (OffsetRange("t", 0, 5, 9),)]
    scheduler = archive_scheduler(chunks, {"t": {0: 9, 1: 1}})
    scheduler.advance.side_effect = lambda _ends, on_events, **_: on_events(3)
    reported: list[tuple[int, int]] = []
    apply_archive(scheduler, lambda done, total: reported.append((done, total)))
    assert reported == [(0, 7), (3, 7), (6, 7)]
    assert [call.kwargs["following"] for call in scheduler.advance.mock_calls] == [
        {"t": (OffsetRange("t", 0, 5, 9),)},
        {},
    ]


@pytest.mark.parametrize(
    ("mirrored", "paused", "said"),
    [
        ({}, {}, ["the archive has no event of a mirrored table"]),
        ({"t": {0: 9}}, {}, ["nothing to apply: the lake has all these events already"]),
        ({"t": {0: 9}}, {"shop.t": "why"}, []),
    ],
)
def test_apply_archive_says_why_nothing_is_applied(
    mirrored: Any, paused: dict[str, str], said: list[str]
) -> None:
    scheduler = archive_scheduler([], {"t": {0: 9}})
    scheduler.tables.mirrored.return_value, scheduler.tables.paused = mirrored, paused
    with capture_logs() as logs:
        apply_archive(scheduler)
    assert [line["event"] for line in logs] == said


def test_open_archive_refuses_topics_with_another_prefix(tmp_path: Path) -> None:
    ArchiveWriter(tmp_path / "recorded", topic_prefix="shop", encoding="json").close()
    config = minimal_config(tmp_path, log={"kind": "archive", "path": "recorded", "topic_prefix": "history"})
    with pytest.raises(ConfigError) as caught:
        open_archive(config, tmp_path / "recorded")
    assert caught.value.hint == 'set topic_prefix = "shop" in [log]'
    assert 'have the prefix "shop", not "history"' in caught.value.message
