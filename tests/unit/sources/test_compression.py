"""Whether a transaction is compressed: the source's answer, or what the configuration says."""

from typing import NoReturn

import pytest

from replicator.errors import SourceUnavailable
from replicator.model.position import SourcePosition
from replicator.sources.compression import CompressionProbe
from tests.support.config import minimal_config

AT = SourcePosition("binlog.000001", 4, 0, 1)
KAFKA = {"kind": "kafka", "bootstrap_servers": "b:1", "topic_prefix": "shop"}


@pytest.mark.parametrize(
    ("answer", "expected", "found"),
    [
        (True, False, True),
        (False, True, False),
        (None, True, True),
        (None, False, None),
    ],
)
def test_answer_of_the_source_decides_before_the_configuration(
    answer: bool | None, expected: bool, found: bool | None
) -> None:
    assert CompressionProbe(expected, lambda _: answer).may_be_at(AT) is found


def test_source_that_does_not_answer_is_not_asked_again_at_once() -> None:
    asked = []

    def ask(position: SourcePosition) -> NoReturn:
        asked.append(position)
        raise SourceUnavailable("cannot reach MySQL")

    probe = CompressionProbe(True, ask)
    assert [probe.may_be_at(AT), probe.may_be_at(AT)] == [True, True]
    assert asked == [AT]


def test_probe_follows_the_configuration() -> None:
    source = {"url": "mysql://u@h/shop", "tables": ["shop.*"]}
    for transactions in (True, False):
        probe = CompressionProbe.of(
            minimal_config(source=source, log={**KAFKA, "transactions": transactions})
        )
        assert probe.expected is transactions
        assert probe.ask is not None
    archive = CompressionProbe.of(minimal_config())
    assert archive.ask is None
    assert archive.may_be_at(AT) is None
