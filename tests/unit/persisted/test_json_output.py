"""Names in the JSON that commands print and that the local stack stores, which programs read.

They are the names of attributes, so a renamed attribute would rename them. Names may be added. If a test fails, a name
was removed or changed.
"""

import json
import shutil
from pathlib import Path

import pytest

from replicator.cli.render import print_checks
from replicator.cli.render_status import print_status
from replicator.operations.check.result import CheckResult
from replicator.operations.stack.process import Child
from replicator.operations.stack.state import (
    PartState,
    StackState,
    load_state,
    save_state,
)
from replicator.operations.status.mirror_status import MirrorStatus, TableMaintenance, TableStatus
from replicator.schema.evolution.changes import ChangeNote
from tests.support.golden import FOLDER

NOTE = ChangeNote("mysql-bin.000007:1234", 1, 2, ("add column a int",))
TABLE = TableStatus("shop.a", "shop.a", "current", 1, 2, 3, "p", 4, 5.0, 6, 7, 8, 9, 10, 11, (NOTE,))
STEPS = {"merge data files": 12}
MAINTENANCE = TableMaintenance(
    "shop.a", "shop.a", 7, 8, 9, 10, 11, 12, STEPS, ("delete snapshots",), ("delete snapshots",)
)
STACK = StackState(
    "local",
    "root's",
    "user's",
    {"mysql": PartState("mysql", Child(7, 1.5), {"mysql": 3306})},
    {"mysql": 3306},
)


def test_status_json_has_the_published_keys(capsys: pytest.CaptureFixture[str]) -> None:
    status = MirrorStatus(
        "shop", "shop", (TABLE,), ("shop.b",), {"shop.c": "why"}, 1, "away", maintenance=(MAINTENANCE,)
    )
    print_status(status, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found.keys() >= {
        *("version", "mirror", "namespace", "tables", "not_started", "paused", "quarantined", "log_problem"),
    }
    assert (found["version"], found["paused"]) == (1, {"shop.c": "why"})
    (table,) = found["tables"]
    assert table.keys() >= {
        *("table", "source", "state", "rows", "changes", "events_behind", "position", "newest_change_ms"),
        *("lag_seconds", "committed_ms", "commits", "quarantined", "data_files", "delete_files", "bytes"),
        *("schema_changes", "equality_delete_files", "equality_deletes"),
    }
    (note,) = table["schema_changes"]
    (maintenance,) = found["maintenance"]
    assert maintenance.keys() >= {
        *("table", "source", "data_files", "delete_files", "bytes", "snapshots", "metadata_bytes"),
        *("maintained_ms", "steps", "due", "overdue", "equality_delete_files", "equality_deletes"),
    }
    assert (maintenance["steps"], maintenance["due"]) == (STEPS, ["delete snapshots"])
    assert note.keys() >= {"position", "ts_ms", "made_ms", "changes", "told"}


def test_check_json_is_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    print_checks([CheckResult("lake: catalog", "fail", "away", "start it")], "fail", as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "version": 1,
        "status": "fail",
        "results": [
            {"name": "lake: catalog", "status": "fail", "found": "away", "next_step": "start it"},
        ],
    }


def test_stack_state_text_is_unchanged(tmp_path: Path) -> None:
    save_state(tmp_path, STACK)
    assert (tmp_path / "stack.json").read_bytes() == (FOLDER / "stack" / "stack.json").read_bytes()
    assert load_state(tmp_path) == STACK
    shutil.copy(FOLDER / "stack" / "stack-0.1.0.json", tmp_path / "stack.json")
    assert load_state(tmp_path) == STACK
