"""How re-reads are shown."""

from dataclasses import replace

from replicator.cli.render import noteworthy, progress_text, reread_lines
from replicator.model.reread import Phase, Request, new_request
from replicator.model.table import TableId


def request(name: str, phase: Phase, ended_ms: int | None = None) -> Request:
    return replace(new_request(TableId("shop", name), "new table"), phase=phase, ended_ms=ended_ms)


def test_status_shows_unfinished_rereads_and_the_newest_of_the_others() -> None:
    done = [request(f"t{n}", Phase.DONE, n) for n in range(100)]
    others = [request("a", Phase.READING), request("b", Phase.FAILED, 1)]
    shown = noteworthy([*others, *done], at_ms=100)
    assert [r.table.name for r in shown] == ["a", "b", "t95", "t96", "t97", "t98", "t99"]


def test_status_forgets_what_was_done_long_ago() -> None:
    """A table that was read for the first time is shown for an hour, one that was read again for a day."""
    new, again = request("new", Phase.DONE, 0), replace(request("again", Phase.DONE, 0), changed=3)
    failed = request("failed", Phase.FAILED, 0)
    hour = 3_600_000

    def shown(at_ms: int) -> list[str]:
        return [r.table.name for r in noteworthy([new, again, failed], at_ms)]

    assert shown(hour - 1) == ["new", "again", "failed"]
    assert shown(hour) == ["again", "failed"]
    assert shown(24 * hour) == ["failed"]


def test_line_of_a_reread_says_what_happened_or_what_it_waits_for() -> None:
    done = replace(request("a", Phase.DONE, 5), rows=1_000, changed=3, reason="heal")
    failed = replace(request("b", Phase.FAILED, 5), problem="no key")
    reading = replace(request("c", Phase.READING), rows=5, estimated=1_000, problem="MySQL is unavailable")
    new, empty = replace(request("d", Phase.DONE, 5), rows=2), request("e", Phase.DONE, 5)
    assert [line.plain for line in reread_lines([done, failed, reading, new, empty])] == [
        "shop.a: 1,000 rows read, 3 differed (heal)",
        "shop.b: could not be read: no key",
        "shop.c: reading, 5 of about 1,000 rows (new table); MySQL is unavailable",
        "shop.d: 2 rows read (new table)",
        "shop.e: was empty when it was read (new table)",
    ]


def test_progress_says_what_a_reread_waits_for() -> None:
    reading = request("a", Phase.READING)
    assert progress_text(reading) == "shop.a reading"
    waiting = replace(reading, problem="db2:3306 is more than 5 s behind")
    assert progress_text(waiting) == "shop.a reading (db2:3306 is more than 5 s behind)"
