"""Which positions are those of compressed transactions: the source's answer, or what the configuration says."""

import threading
import time

import pytest

from replicator.errors import PrivilegeError, SourceUnavailable
from replicator.model.position import SourcePosition
from replicator.sources.compressed_positions import CompressedPositions
from tests.support.config import minimal_config

PLACES = [SourcePosition("binlog.000001", pos, 0, 1) for pos in (4, 8)]
KAFKA = {"kind": "kafka", "bootstrap_servers": "b:1", "topic_prefix": "shop"}
URL = {"tables": ["shop.*"], "url": "mysql://root@db"}


def found(positions: CompressedPositions) -> list[bool]:
    """Return what is found for all places, and assert that nothing waits for the first answers."""
    for place in PLACES:
        with pytest.raises(SourceUnavailable, match="is compressed"):
            positions.may_be_at(place)
    until = time.monotonic() + 30
    while True:
        try:
            return [positions.may_be_at(place) for place in PLACES]
        except SourceUnavailable:
            assert time.monotonic() < until
            time.sleep(0.01)


@pytest.mark.parametrize("expected", [True, False])
def test_source_is_asked_beside(expected: bool) -> None:
    may_answer, answers = threading.Event(), dict[int, bool | None]({4: True})

    def ask(position: SourcePosition) -> bool | None:
        may_answer.wait(30)
        return answers[position.pos]

    positions = CompressedPositions(ask, expected=expected)
    with pytest.raises(SourceUnavailable):
        positions.may_be_at(PLACES[0])
    may_answer.set()
    # The source does not have the second position, so that any transaction may have been there.
    answers[8] = None
    assert found(CompressedPositions(ask, expected=expected)) == [True, True]
    answers[8] = False
    assert found(CompressedPositions(ask, expected=expected)) == [True, False]


def test_unreachable_source_is_asked_again() -> None:
    answers = [SourceUnavailable("cannot reach MySQL"), SourceUnavailable("cannot reach MySQL")]

    def ask(_: SourcePosition) -> bool:
        if answers:
            raise answers.pop()
        return False

    assert found(CompressedPositions(ask, expected=True)) == [False, False]


@pytest.mark.parametrize("expected", [True, False])
def test_configuration_decides_if_the_source_cannot_tell(expected: bool) -> None:
    def ask(_: SourcePosition) -> bool:
        raise PrivilegeError("no REPLICATION SLAVE")

    assert found(CompressedPositions(ask, expected=expected)) == [expected, expected]


@pytest.mark.parametrize(
    ("log", "source", "log_grows", "expected"),
    [
        ({"kind": "archive", "path": "/archive"}, {"tables": ["shop.*"]}, True, False),
        # An archive may be older than the source.
        (KAFKA | {"transactions": True}, URL, False, True),
        ({"kind": "archive", "path": "/archive"}, URL, False, False),
    ],
)
def test_configuration_decides_without_a_source(
    log: dict[str, object], source: dict[str, object], log_grows: bool, expected: bool
) -> None:
    config = minimal_config(log=log, source=source)
    assert CompressedPositions.of(config, log_grows=log_grows).may_be_at(PLACES[0]) is expected
