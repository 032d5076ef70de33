"""What `status` prints of log tables."""

from rich.console import Console

from replicator.cli.render_status import log_table_lines
from replicator.config.log_tables import LogTableConfig
from replicator.lake.properties import Pause
from replicator.log_tables.status import LogTableStatus as Status
from replicator.log_tables.status import _judged
from replicator.model.common import now_ms

SETTINGS = LogTableConfig(topic="clicks", table="logs.clicks")


def test_report_tells_what_each_table_has_and_why_one_is_paused() -> None:
    found = (
        Status("logs.clicks", "clicks", "current", 150, 0, now_ms() - 5_000, now_ms() - 1_000, 3),
        Status("logs.views", "views", "paused", 7, 12, reason="no room", next_step="run: replicator check"),
        Status("logs.new", "new", "new"),
    )
    console = Console(width=110, record=True, file=None, quiet=False)
    with console.capture() as captured:
        for part in log_table_lines(found):
            console.print(part, soft_wrap=False)
    lines = [" ".join(line.split()) for line in captured.get().splitlines()]
    assert lines[0] == "log table state rows behind newest event committed topic"
    assert lines[1].startswith("logs.clicks current 150 0 ")
    assert lines[1].endswith(" clicks")
    assert lines[3] == "logs.new new ? ? - - new"
    assert "logs.views is paused: no room" in lines
    assert any(line.startswith("next: ") and "replicator check" in line for line in lines)


def test_a_state_has_its_reason() -> None:
    pause = Pause("a gap", "set on_gap", 1)
    assert _judged(SETTINGS, 5, None, pause, is_new=False) == ("paused", "a gap", "set on_gap")
    assert _judged(SETTINGS, None, "no answer", None, is_new=False)[:2] == ("unknown", "no answer")
    assert _judged(SETTINGS, None, None, None, is_new=True)[0] == "new"
    assert _judged(SETTINGS, 3, None, None, is_new=True)[0] == "behind"
    assert _judged(SETTINGS, 0, None, None, is_new=True) == ("new", None, None)
    assert _judged(SETTINGS, 0, None, None, is_new=False) == ("current", None, None)
