"""What the record of a run says of a process that runs, ended, was killed, or is on another machine."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from replicator.config import Config
from replicator.model.common import now_ms
from replicator.runner import run_record, run_recorder
from replicator.runner.run_record import RunRecord, read_record, write_record
from replicator.runner.run_recorder import RunRecorder
from tests.support.config import minimal_config
from tests.support.mirror import until


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setattr(run_recorder, "_WRITE_S", 0.02)
    found = minimal_config()
    return found.model_copy(
        update={"mirror": found.mirror.model_copy(update={"state_dir": tmp_path / "state"})}
    )


def recorded(config: Config) -> RunRecord:
    found = read_record(config)
    assert found is not None
    return found


def test_record_says_what_the_process_does(config: Config, tmp_path: Path) -> None:
    recorder = RunRecorder(config, tmp_path / "shop.toml")
    assert read_record(config) is None
    with recorder.recording():
        first = recorded(config)
        assert (first.state, first.pid, first.batch_ms) == ("starting", os.getpid(), None)
        recorder.follows()
        recorder.made_batch()
        until(lambda: recorded(config).batch_ms, seconds=10, doing="a record with the batch")
        assert recorded(config).state == "running"
    last = recorded(config)
    assert (last.state, last.is_alive, last.reason) == ("ended", False, None)
    assert last.ended_ms is not None
    assert last.ended_ms >= last.began_ms


def test_killed_process_is_noticed_by_its_id(config: Config) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        ticks = run_record._start_ticks(other.pid)
        assert ticks is not None
        record = replace(RunRecord.of_this_process("shop.toml"), pid=other.pid, started=ticks)
        write_record(config, record)
        assert recorded(config).state == "starting"
        other.kill()
    assert recorded(config).state == "killed"


def test_process_of_another_machine_runs_as_long_as_it_writes_its_record(config: Config) -> None:
    record = replace(RunRecord.of_this_process("shop.toml"), host="another", started=1, follows=True)
    assert record.state == "running"
    assert replace(record, seen_ms=now_ms() - 60_000).state == "killed"


def test_record_of_an_earlier_version_is_read(config: Config) -> None:
    config.mirror.state_dir.mkdir(parents=True)
    text = '{"version": 1, "pid": 1, "started": 2, "file": "shop.toml", "reloads": []}'
    (config.mirror.state_dir / "run.json").write_text(text)
    assert (recorded(config).pid, recorded(config).batch_ms, recorded(config).state) == (1, None, "killed")
