"""Which request of a running mirror a command waits for. The mirror itself is in tests/e2e."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from replicator.config import Config
from replicator.model.reread import REREAD_KEY, KeySpan, Narrowed, Phase, Request, new_request, requests_in
from replicator.model.table import TableId
from replicator.operations import reread
from replicator.runner.lock import only_one

ORDERS = TableId("shop", "orders")
PART = Narrowed("id", (KeySpan(1, 9, 9),))
OTHER_PART = Narrowed("id", (KeySpan(5, 9, 5),))

Step = Callable[["RunningMirror"], None]


class RunningMirror:
    """A mirror that does one step after each look of the command at the lake."""

    def __init__(self, config: Config, lake: SqlCatalog) -> None:
        self.config, self.lake = config, lake
        self.steps: list[Step] = []
        self.seen: list[str] = []

    @property
    def newest(self) -> Request:
        (request,) = requests_in(dict(self.lake.load_namespace_properties("shop_ops")))
        return request

    def record(self, request: Request) -> None:
        properties = {REREAD_KEY + str(request.table): request.to_json()}
        self.lake.update_namespace_properties("shop_ops", updates=properties)

    def end_newest(self, phase: Phase = Phase.DONE) -> None:
        self.record(replace(self.newest, phase=phase, ended_ms=1))

    def look(self, requests: Sequence[Request]) -> None:
        self.seen.append(requests[0].reason)
        if self.steps:
            self.steps.pop(0)(self)
        elif not requests[0].has_ended:
            pytest.fail("the command waits for a request that the mirror does not know")

    def command(self, part: Narrowed | None = None) -> Request:
        narrowed = {} if part is None else {ORDERS: part}
        (ended,) = reread._let_mirror_read(self.config, [ORDERS], "on command", self.look, narrowed)
        return ended


@pytest.fixture
def mirror(config: Config, lake: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> RunningMirror:
    monkeypatch.setattr(reread, "_POLL_S", 0.0)
    return RunningMirror(config, lake)


def test_command_beside_a_running_mirror_starts_no_java(
    mirror: RunningMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An import of what starts Java fails.
    monkeypatch.setitem(sys.modules, "replicator.runner.process", None)
    mirror.steps = [RunningMirror.end_newest]
    with only_one(mirror.config):
        (ended,) = reread.reread(mirror.config, [ORDERS], "on command", mirror.look)
    assert ended.phase is Phase.DONE


@pytest.mark.parametrize(("open_part", "part"), [(None, None), (None, PART), (PART, PART)])
def test_a_request_that_reads_as_much_is_joined(
    mirror: RunningMirror, open_part: Narrowed | None, part: Narrowed | None
) -> None:
    request = new_request(ORDERS, "of the mirror", narrowed=open_part)
    mirror.record(request)
    mirror.steps = [RunningMirror.end_newest]
    assert mirror.command(part).id == request.id


@pytest.mark.parametrize("part", [None, OTHER_PART])
def test_a_table_is_read_after_the_end_of_a_request_that_reads_less(
    mirror: RunningMirror, part: Narrowed | None
) -> None:
    repair = new_request(ORDERS, "repair", narrowed=PART)
    mirror.record(repair)
    mirror.steps = [lambda _: None, RunningMirror.end_newest, RunningMirror.end_newest]
    ended = mirror.command(part)
    assert ended.id != repair.id
    assert (ended.reason, ended.phase, ended.narrowed) == ("on command", Phase.DONE, part)


@pytest.mark.parametrize("ends_at_once", [False, True])
def test_a_request_that_the_mirror_replaces_is_followed(mirror: RunningMirror, ends_at_once: bool) -> None:
    """It is replaced if the table pauses, or the connector begins again, while it is read."""
    newer = new_request(ORDERS, "of the mirror")

    def replace_it(mirror: RunningMirror) -> None:
        assert mirror.newest.reason == "on command"
        mirror.record(newer)
        if ends_at_once:
            mirror.end_newest(Phase.FAILED)

    mirror.steps = [replace_it, *([] if ends_at_once else [lambda mirror: mirror.end_newest(Phase.FAILED)])]
    ended = mirror.command()
    assert (ended.id, ended.phase) == (newer.id, Phase.FAILED)


def test_an_earlier_request_that_has_ended_is_not_joined(mirror: RunningMirror) -> None:
    mirror.record(replace(new_request(ORDERS, "earlier"), phase=Phase.DONE, ended_ms=1))
    mirror.steps = [RunningMirror.end_newest]
    assert mirror.command().reason == "on command"
