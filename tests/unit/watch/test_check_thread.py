"""What the thread of the checks records and when it rests, with checks that are told."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from replicator.config import Config
from replicator.model.compared import COMPARED_KEY, comparisons_in
from replicator.model.table import TableId
from replicator.model.verified import verified_in
from replicator.verify.interruption import Interruption
from replicator.verify.mirror_check import Wanted
from replicator.verify.results import Report, TableResult, Verdict
from replicator.watch.check_thread import CheckThread
from replicator.watch.differences import Differences
from tests.support.config import minimal_config
from tests.unit.watch.test_scheduled_checks import MIRROR, A


class Catalog:
    """The properties of the `_ops` namespace."""

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}

    def create_namespace_if_not_exists(self, _: str) -> None:
        pass

    def load_namespace_properties(self, _: str) -> dict[str, str]:
        return self.properties

    def update_namespace_properties(self, _: str, updates: dict[str, str]) -> None:
        self.properties |= updates


class Checks:
    """Answers checks with results, and keeps what was wanted."""

    def __init__(self, config: Config, *results: TableResult) -> None:
        self.catalog = Catalog()
        self.wanted: list[Wanted] = []
        self.differences = Differences(config, None)  # type: ignore[arg-type]
        self._results = list(results)
        self._thread = CheckThread(config, self.differences)

    def verify(self, _: Config, wanted: Wanted, __: Any) -> Report:
        self.wanted.append(wanted)
        return Report("shop", "1", "9", "b.1:4", None, 0, 5, [self._results.pop(0)])

    @contextmanager
    def open_catalog(self, _: Any) -> Iterator[Catalog]:
        yield self.catalog

    def run(self) -> list[float]:
        """Carry out all checks, and return how long the thread rests after each."""
        rests = []
        with (
            patch("replicator.watch.check_thread.verify", self.verify),
            patch("replicator.watch.check_thread.open_catalog", self.open_catalog),
            patch("replicator.watch.check_thread.mirrored_tables", return_value=[A]),
            patch.object(CheckThread, "_causes", return_value={}),
        ):
            while self._results:
                ended = self._thread.check_next((), Interruption())
                assert ended is not None
                rests.append(ended.rest)
        return rests


EQUAL = TableResult("shop.a", Verdict.EQUAL, source_rows=10, offsets={0: 7}, position="b.1:4")


def test_a_large_table_is_checked_in_parts_and_recorded_at_the_end() -> None:
    checks = Checks(
        minimal_config(**MIRROR), replace(EQUAL, upto=("9",)), replace(EQUAL, upto=("19",)), EQUAL
    )
    checks.run()
    assert [wanted.after for wanted in checks.wanted] == [(), ("9",), ("19",)]
    assert {wanted.limits.rows for wanted in checks.wanted} == {400 * 120}
    (recorded,) = verified_in(checks.catalog.properties)
    assert (recorded.rows, recorded.verdict, recorded.sampled, recorded.offsets) == (30, "equal", False, {})
    assert comparisons_in(checks.catalog.properties)[A].upto == ()


def test_another_process_goes_on_where_the_last_part_ended() -> None:
    checks = Checks(minimal_config(**MIRROR), replace(EQUAL, upto=("9",)))
    checks.run()
    assert verified_in(checks.catalog.properties) == []
    later = Checks(minimal_config(**MIRROR), EQUAL)
    later.catalog = checks.catalog
    later.run()
    assert [wanted.after for wanted in later.wanted] == [("9",)]
    assert verified_in(later.catalog.properties)[0].rows == 20


@pytest.mark.parametrize(("verify", "rests"), [({}, True), ({"verify": {"every": "1 hour"}}, False)])
def test_the_source_is_read_at_the_default_rate_also_in_one_statement(
    verify: dict[str, Any], rests: bool
) -> None:
    checks = Checks(minimal_config(**MIRROR, **verify), replace(EQUAL, source_rows=400_000))
    (rest,) = checks.run()
    assert (900 < rest <= 1_000) if rests else rest == 0


def test_what_is_compared_by_default_can_be_switched_off() -> None:
    assert minimal_config(**MIRROR).compares_values
    assert not minimal_config(**MIRROR, verify={"enabled": False}).compares_values
    # An archive has no source that could be read.
    assert not minimal_config().compares_values


def test_records_of_another_version_are_left_out() -> None:
    found = comparisons_in(
        {f"{COMPARED_KEY}shop.a": '{"version": 2}', f"{COMPARED_KEY}shop.b": "[]", "x": "y"}
    )
    assert found == {}
    assert TableId("shop", "a") == A
