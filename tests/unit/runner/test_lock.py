"""The lock of a mirror on this machine."""

import shutil
from pathlib import Path

import pytest

from replicator.config import Config
from replicator.errors import ConfigError, MirrorRuns
from replicator.runner.lock import only_one
from tests.support.config import minimal_config


def config_in(folder: Path) -> Config:
    found = minimal_config()
    return found.model_copy(update={"mirror": found.mirror.model_copy(update={"state_dir": folder})})


def test_second_process_is_refused_after_the_state_folder_was_deleted(tmp_path: Path) -> None:
    config = config_in(tmp_path / "state")
    with only_one(config):
        for _ in range(2):
            with pytest.raises(MirrorRuns, match="already running"), only_one(config):
                pass
            shutil.rmtree(config.mirror.state_dir)
    with only_one(config):
        pass


def test_state_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(ConfigError, match="state folder"), only_one(config_in(tmp_path / "state")):
        pass
