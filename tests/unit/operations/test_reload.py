"""`replicator reload` with a real process that reloads, and without one."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from replicator.config import Config, load
from replicator.errors import CheckFailed, UsageError
from replicator.operations.reload import check_connector, reload
from replicator.runner.run_record import RunRecord, read_record, write_record
from replicator.sources.connector.settings import table_selection
from tests.support.config_files import GOOD, load_text
from tests.support.kafka_connect import Connect, serving
from tests.support.mirror import until
from tests.support.mock_broker import MockBroker

ROOT = Path(__file__).parents[3]
WAIT_S = 60.0


@contextmanager
def idle_run(file: Path) -> Iterator["subprocess.Popen[str]"]:
    """Run the mirror of `file` in another process, with sessions that do nothing."""
    command = [sys.executable, "-m", "tests.programs.idle_run", str(file)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "SHOP_PASSWORD": "hunter2"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def broker() -> MockBroker:
    return MockBroker()


@pytest.fixture
def text(broker: MockBroker) -> str:
    return GOOD.replace("127.0.0.1:9092", broker.servers)


@pytest.fixture
def file(tmp_path: Path, text: str) -> Path:
    (tmp_path / "shop.toml").write_text(text)
    return tmp_path / "shop.toml"


def test_reload_waits_until_the_mirror_accepts_or_refuses(file: Path, text: str) -> None:
    with idle_run(file) as process:
        file.write_text(text.replace("10 seconds", "1 second"))
        assert reload(load(file), file, WAIT_S).changed == ("apply.trigger",)
        assert reload(load(file), file, WAIT_S).changed == ()
        file.write_text(text + '[spark]\nmaster = "local[1]"\n')
        with pytest.raises(CheckFailed, match=r"continues as before: .*spark\.master") as caught:
            reload(load(file), file, WAIT_S)
        assert "restart" in (caught.value.hint or "")
        file.write_text(text)
        assert reload(load(file), file, WAIT_S).changed == ("apply.trigger",)
        process.terminate()
        assert process.wait(WAIT_S) == 0
    with pytest.raises(UsageError, match="has no record"):
        reload(load(file), file, WAIT_S)


def test_reload_fails_when_the_mirror_does_not_answer_or_ends(file: Path) -> None:
    with idle_run(file) as process:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(CheckFailed, match=r"not answered in 0\.1 s"):
            reload(load(file), file, 0.1)
        killer = threading.Timer(0.5, process.kill)
        killer.start()
        with pytest.raises(CheckFailed, match="ended before it had reloaded"):
            reload(load(file), file, WAIT_S)
        killer.join()


def recorded(config: Config, file: Path) -> RunRecord:
    """Write the record of a process that is this one, and return it."""
    config.mirror.state_dir.mkdir(parents=True)
    record = RunRecord.of_this_process(file)
    write_record(config, record)
    return record


def test_no_signal_is_sent_to_another_process_with_the_same_id(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _number: sent.append(pid))
    config = load(file)
    record = recorded(config, file)
    for stale in (
        replace(record, started=record.started - 60),
        replace(record, pid=max(psutil.pids()) + 100_000),
    ):
        write_record(config, stale)
        with pytest.raises(UsageError, match="does not run mirror 'shop'"):
            reload(config, file, 0)
    assert sent == []


CONNECTORS = "GET /connectors?expand=info&expand=status"


@pytest.fixture
def connect() -> Iterator[Connect]:
    with serving() as server:
        yield server


def connector(name: str, options: dict[str, str]) -> dict[str, object]:
    status = {"connector": {"state": "RUNNING"}, "tasks": [{"id": 0, "state": "RUNNING"}]}
    return {name: {"info": {"config": {"topic.prefix": "shop", **options}}, "status": status}}


def with_connect(file: Path, text: str, url: str) -> Config:
    return load_text(
        file, text.replace('topic_prefix = "shop"', f'topic_prefix = "shop"\nconnect_url = "{url}"')
    )


def test_connector_must_read_the_tables_of_the_configuration(file: Path, text: str, connect: Connect) -> None:
    config = with_connect(file, text, connect.url)
    options = {name: value for name, value in table_selection(config).items() if value}
    connect.reply(CONNECTORS, 200, connector("shop", options))
    check_connector(config, 7)
    added = with_connect(file, text.replace('["shop.*"]', '["shop.*", "crm.people"]'), connect.url)
    with pytest.raises(CheckFailed, match=r"database\.include\.list, table\.include\.list differ") as caught:
        check_connector(added, 7)
    assert "replicator connect" in (caught.value.hint or "")
    assert "process 7" in (caught.value.hint or "")
    keyed = with_connect(file, text.replace("changelog = false", 'key = ["n"]'), connect.url)
    with pytest.raises(CheckFailed, match=r"message\.key\.columns differ"):
        check_connector(keyed, 7)


def test_mirror_is_not_told_to_reload_before_its_connector_reads_the_tables(
    file: Path, text: str, connect: Connect
) -> None:
    connect.reply(CONNECTORS, 200, connector("shop", {}))
    with idle_run(file) as process:
        config = with_connect(file, text, connect.url)
        with pytest.raises(CheckFailed, match="differ"):
            reload(config, file, WAIT_S)
        process.send_signal(signal.SIGHUP)
        done = until(lambda: (read_record(config) or fail()).reloads, seconds=WAIT_S, doing="reload")
        assert [outcome.changed for outcome in done] == [("log.connect_url",)]


def fail() -> RunRecord:
    raise AssertionError("the record is gone")
