"""What is at a position of the binlog: the source's answer, or what the configuration says."""

from dataclasses import dataclass, field
from typing import NoReturn

import pytest

from replicator.errors import SourceUnavailable
from replicator.model.position import SourcePosition
from replicator.sources.binlog_probe import BinlogProbe
from tests.support.config import minimal_config

AT = SourcePosition("binlog.000001", 4, 0, 1)
KAFKA = {"kind": "kafka", "bootstrap_servers": "b:1", "topic_prefix": "shop"}


@dataclass
class Known:
    """A binlog that gives the same answer to each question."""

    answer: bool | None

    def is_compressed(self, _: SourcePosition) -> bool | None:
        return self.answer

    def has_both(self, _event: SourcePosition, _later: SourcePosition) -> bool | None:
        return self.answer


@dataclass
class Silent:
    """A binlog of a server that cannot be reached."""

    asked: list[SourcePosition] = field(default_factory=list)

    def is_compressed(self, position: SourcePosition) -> NoReturn:
        self.asked.append(position)
        raise SourceUnavailable("cannot reach MySQL")

    def has_both(self, event: SourcePosition, _later: SourcePosition) -> NoReturn:
        self.is_compressed(event)


@pytest.mark.parametrize(
    ("answer", "compresses", "found"),
    [
        (True, False, True),
        (False, True, False),
        (None, True, True),
        (None, False, None),
    ],
)
def test_answer_of_the_source_decides_before_the_configuration(
    answer: bool | None, compresses: bool, found: bool | None
) -> None:
    probe = BinlogProbe(compresses, Known(answer))
    assert probe.may_be_compressed(AT) is found
    assert probe.has_both(AT, AT) is answer


def test_source_that_does_not_answer_is_not_asked_again_at_once() -> None:
    binlog = Silent()
    probe = BinlogProbe(True, binlog)
    assert [probe.may_be_compressed(AT), probe.may_be_compressed(AT), probe.has_both(AT, AT)] == [
        True,
        True,
        None,
    ]
    assert binlog.asked == [AT]


def test_source_that_must_answer_is_asked_each_time() -> None:
    binlog = Silent()
    probe = BinlogProbe(False, binlog, must_answer=True)
    for _ in range(2):
        with pytest.raises(SourceUnavailable):
            probe.has_both(AT, AT)
    assert binlog.asked == [AT, AT]


def test_caller_need_not_wait_for_the_source() -> None:
    binlog = Silent()
    probe = BinlogProbe(False, binlog, must_answer=True)
    assert [probe.has_both(AT, AT, waits=False) for _ in range(2)] == [None, None]
    assert binlog.asked == [AT]


def test_probe_follows_the_configuration() -> None:
    source = {"url": "mysql://u@h/shop", "tables": ["shop.*"]}
    for transactions in (True, False):
        config = minimal_config(source=source, log={**KAFKA, "transactions": transactions})
        assert not BinlogProbe.of(config, log_grows=False).must_answer
        probe = BinlogProbe.of(config, log_grows=True)
        assert probe.compresses is transactions
        assert probe.binlog is not None
        assert probe.must_answer
    archive = BinlogProbe.of(minimal_config(), log_grows=True)
    assert not archive.must_answer
    assert archive.binlog is None
    assert archive.may_be_compressed(AT) is None
    assert archive.has_both(AT, AT) is None
