"""Run the tutorial "First look" as printed, in an empty folder."""

from pathlib import Path

import pytest

from tests.support.tutorials import run, tutorial

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_first_look_tutorial_runs_as_printed(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    output = run(tutorial("first-look"), folder)
    assert "11 of 11 tables equal MySQL 9.7.4-2 at mysql-bin.000001:20411179, row by row" in output
    assert output.count("current") >= 11
    assert "UPDATE_BEFORE" in output
