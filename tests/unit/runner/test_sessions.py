"""The order of the sessions of a run. What a session does is replaced; `tests/spark/test_reload.py` runs real ones."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from replicator.config import Config
from replicator.errors import LakeUnavailable
from replicator.runner import sessions
from replicator.runner.reloads import NextSession, SessionControl
from replicator.runner.run_record import ReloadOutcome
from replicator.runner.sessions import Sessions
from replicator.runner.stream import KafkaStream
from replicator.runner.summary import RunSummary, RunTotals
from tests.support.config_files import GOOD, load_text

RELOAD = ReloadOutcome(1.0, ("apply.trigger",))


class Run:
    """A run whose sessions do what `work` says; `lake` has the errors of the next attempts to open the mirror."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
        self.config = config
        self.control = SessionControl()
        self.reloads = Mock(answering=contextlib.nullcontext)
        self.lake: list[Exception] = []
        self.done: list[str] = []
        self.logs: list[Any] = []
        self.work: list[Callable[[], None]] = []
        self.on_away: Callable[[], None] = lambda: None
        monkeypatch.setattr(sessions, "_RETRY_S", 0.01)
        monkeypatch.setattr(sessions, "sole_process", self._sole_process)
        monkeypatch.setattr(sessions, "check_java", lambda _spark: None)
        monkeypatch.setattr(sessions, "open_mirror", self._open)
        monkeypatch.setattr(sessions, "follow", self._follow)

    @contextlib.contextmanager
    def _sole_process(self, *_: Any) -> Iterator[Any]:
        self.done.append("start")
        yield Mock()
        self.done.append("end")

    def _open(self, config: Config, _log: Any, _spark: Any, _on_batch: Any, *, totals: Any, **_: Any) -> Any:
        if self.lake:
            self.done.append("away")
            self.on_away()
            raise self.lake.pop(0)
        totals = totals or RunTotals(with_before=True)
        totals.batches += 1
        self.done.append(f"open {config.apply.trigger:g}")
        return SimpleNamespace(
            context=Mock(),
            stopping=threading.Event(),
            recovery=None,
            totals=totals,
            summary=lambda: totals.summary({}),
            close=lambda: self.done.append("close"),
        )

    def _follow(self, stream: KafkaStream, _goal: Any) -> None:
        if self.work:
            self.work.pop(0)()
            assert stream.scheduler.stopping.is_set()

    def session(self, trigger: float = 10.0, reload: ReloadOutcome | None = None) -> NextSession:
        apply = self.config.apply.model_copy(update={"trigger": trigger})
        self.logs.append(Mock())
        return NextSession(self.config.model_copy(update={"apply": apply}), self.logs[-1], reload)

    def offer(self) -> None:
        self.control.offer(self.session(1.0, RELOAD))

    def run(self) -> RunSummary:
        with contextlib.ExitStack() as process:
            made = Sessions(process, self.control, self.reloads, until_caught_up=False, on_batch=None)
            return made.run(self.session())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    return Run(monkeypatch, load_text(tmp_path / "shop.toml", GOOD))


def test_sessions_share_the_process_and_the_totals(run: Run) -> None:
    run.work = [run.offer]
    assert run.run().batches == 2
    assert run.done == ["start", "open 10", "close", "open 1", "close", "end"]
    assert [log.close.call_count for log in run.logs] == [1, 1]
    assert run.reloads.applied.call_args_list == [((RELOAD,),)]


def test_lake_that_is_away_ends_a_start_but_not_a_reload(run: Run) -> None:
    run.lake = [LakeUnavailable("away")]
    with pytest.raises(LakeUnavailable):
        run.run()
    assert run.done == ["start", "away"]

    def offer() -> None:
        run.lake = [LakeUnavailable("away"), LakeUnavailable("away")]
        run.offer()

    run.done, run.work = [], [offer]
    run.run()
    assert run.done == ["start", "open 10", "close", "away", "away", "open 1", "close", "end"]


def test_run_that_must_end_does_not_wait_for_the_lake(run: Run) -> None:
    def offer() -> None:
        run.lake = [LakeUnavailable("away")] * 10_000
        run.offer()
        run.on_away = run.control.set

    run.work = [offer]
    assert run.run().batches == 1
    assert run.done[-2:] == ["away", "end"]
    run.reloads.applied.assert_not_called()
