"""Which configurations a run accepts while it runs, and what it records about that. The log is a real, empty broker."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replicator.config import Config, load
from replicator.runner.reloads import ConfigFile, NextSession, Reloads, SessionControl
from replicator.runner.run_record import ReloadOutcome, read_record
from replicator.runner.run_recorder import RunRecorder
from tests.support.config_files import GOOD, load_text
from tests.support.mirror import until
from tests.support.mock_broker import MockBroker

WAIT_S = 30.0


class Run:
    """A run whose sessions do nothing."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.reads = 0
        self.reader: Callable[[], Config] = lambda: load(file)
        self.config = load(file)
        self.control = SessionControl()
        self.record = RunRecorder(self.config, file)
        self.reloads = Reloads(self.config, ConfigFile(file, self.read), self.control, self.record)
        self.ended = self.begin_session()

    def read(self) -> Config:
        self.reads += 1
        return self.reader()

    def begin_session(self) -> threading.Event:
        stopping = threading.Event()
        self.control.begin(stopping)
        return stopping

    def write(self, text: str, *replaced: tuple[str, str]) -> None:
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        self.file.write_text(text)

    def follow(self) -> NextSession:
        """Wait for the end of the session, and begin the next one."""
        assert self.ended.wait(WAIT_S)
        following = self.control.take()
        assert following is not None
        self.ended = self.begin_session()
        assert following.reload is not None
        self.reloads.applied(following.reload)
        return following

    def outcomes(self, count: int) -> tuple[ReloadOutcome, ...]:
        """Wait for a number of outcomes in the record."""

        def found() -> tuple[ReloadOutcome, ...]:
            record = read_record(self.config)
            return record.reloads if record is not None and len(record.reloads) >= count else ()

        return tuple(until(found, seconds=WAIT_S, doing=f"{count} outcomes"))


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    broker = MockBroker()
    yield GOOD.replace("127.0.0.1:9092", broker.servers)
    del broker


@pytest.fixture
def run(tmp_path: Path, text: str) -> Iterator[Run]:
    load_text(tmp_path / "shop.toml", text)
    made = Run(tmp_path / "shop.toml")
    with made.record.recording(), made.reloads.answering():
        yield made


def test_accepted_configuration_ends_the_session_and_is_recorded_once_it_is_in_use(
    run: Run, text: str
) -> None:
    run.write(text, ('["shop.*"]', '["shop.*", "crm.*"]'), ("10 seconds", "1 second"))
    run.reloads.request()
    assert run.ended.wait(WAIT_S)
    record = read_record(run.config)
    assert record is not None
    assert (record.is_alive, record.file, record.reloads) == (True, str(run.file), ())
    following = run.follow()
    assert following.config.source.tables == ("shop.*", "crm.*")
    assert following.log.topic_prefix == "shop"
    [outcome] = run.outcomes(1)
    assert (outcome.changed, outcome.refused) == (("source.tables", "apply.trigger"), None)
    assert not run.ended.is_set()


def test_changes_are_those_since_the_last_accepted_configuration(run: Run, text: str) -> None:
    slower = ("10 seconds", "20 seconds")
    for replaced in ((slower,), (slower, ('"shop.tmp_*"', '"shop.old"')), (slower,)):
        run.write(text, *replaced)
        run.reloads.request()
        run.follow()
    changed = [outcome.changed for outcome in run.outcomes(3)]
    assert changed == [("apply.trigger",), ("source.exclude",), ("source.exclude",)]


@pytest.mark.parametrize(
    ("replaced", "said", "hint"),
    [
        (('tables = ["shop.*"]', 'tables = ["shop"]'), "not a table pattern", "edit"),
        (("[mirror]", "[mirror"), "not valid TOML", "brackets"),
        (('name = "shop"\n\n[source]', 'name = "other"\n\n[source]'), "mirror.name", "restart"),
        (("db:3307", "replica:3307"), "source.url", "restart"),
        (("SHOP_PASSWORD", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE is not set", "export"),
        (("[apply]", '[log.options]\n"no.such.option" = "x"\n[apply]'), "no.such.option", ""),
    ],
)
def test_refused_configuration_ends_no_session(
    run: Run, text: str, replaced: tuple[str, str], said: str, hint: str
) -> None:
    run.write(text, replaced)
    run.reloads.request()
    [outcome] = run.outcomes(1)
    assert said in (outcome.refused or "")
    assert hint in (outcome.hint or "")
    assert "hunter2" not in str(outcome)
    assert not run.ended.is_set()
    # The next one is compared with the configuration in use.
    run.write(text, ("10 seconds", "1 second"))
    run.reloads.request()
    run.follow()
    assert [outcome.changed for outcome in run.outcomes(2)] == [(), ("apply.trigger",)]


def test_requests_during_a_reload_are_answered_together_after_it(run: Run, text: str) -> None:
    run.reloads.request()
    assert run.ended.wait(WAIT_S)
    run.write(text, ("10 seconds", "1 second"))
    for _ in range(3):
        run.reloads.request()
    run.follow()
    run.follow()
    assert [outcome.changed for outcome in run.outcomes(2)] == [(), ("apply.trigger",)]
    assert run.reads == 2


def session() -> NextSession:
    other: Any = None
    return NextSession(other, other)


def test_run_that_must_end_begins_no_other_session() -> None:
    control, stopping, later = SessionControl(), threading.Event(), threading.Event()
    control.begin(stopping)
    control.offer(session())
    control.set()
    assert (stopping.is_set(), control.take()) == (True, None)
    control.begin(later)
    assert later.is_set()
