"""How rewinds are shown."""

import time
from dataclasses import replace

from replicator.cli.render_rewinds import rewind_lines
from replicator.model.rewind import Rewind, RewindPhase
from replicator.model.table import TableId


def rewind(name: str, phase: RewindPhase, ended_ms: int | None = None) -> Rewind:
    lost = Rewind(TableId("shop", name), "the log begins at 9", "binlog.000007", 12_400_000, 5)
    return replace(lost, phase=phase, ended_ms=ended_ms)


def test_line_of_a_rewind_says_what_is_sent_again_and_why() -> None:
    now = round(time.time() * 1000)
    done = replace(rewind("a", RewindPhase.DONE, now - 180_000), events=1_234)
    failed = replace(rewind("b", RewindPhase.FAILED, now - 180_000), problem="no room")
    assert [line.plain for line in rewind_lines([done, failed, rewind("c", RewindPhase.SENDING)])] == [
        "shop.a: 1,234 events sent again 3 min 0 s ago, from the beginning of binlog.000007 on (the log begins at 9)",
        "shop.b: events could not be sent again 3 min 0 s ago: no room",
        "shop.c: events are sent again from the beginning of binlog.000007 on, 12 MB (the log begins at 9)",
    ]


def test_status_shows_unfinished_rewinds_and_the_newest_of_the_others() -> None:
    ended = [rewind(f"t{n}", RewindPhase.DONE, n) for n in range(100)]
    shown = [
        line.plain.partition(":")[0] for line in rewind_lines([rewind("a", RewindPhase.REQUESTED), *ended])
    ]
    assert shown == [f"shop.{name}" for name in ("a", "t95", "t96", "t97", "t98", "t99")]
