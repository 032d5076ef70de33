"""The present version continues the lake of an earlier version.

tests/golden/lakes/0.1.0.tar.xz has a lake and its archive as replicator 0.1.0 wrote them (`tests.workload.golden_lake`
describes their contents). tests/golden/lakes/0.1.0.json has the contents of the lake after that version itself applied
the rest of the archive. Times of the run and the number of commits are not compared. Texts for people are compared only
if the lake contained them before.
"""

import json
import re
from typing import Any

import pytest

from tests.support.golden import FOLDER
from tests.support.lake_harness import LakeHarness
from tests.support.lake_schemas import validate_lake
from tests.support.packed_lake import unpack
from tests.support.resumed_lake import description, resume
from tests.workload.golden_lake import HASH_KEY, HASH_KEY_VARIABLE

WRITTEN = "0.1.0"
EARLIER = {"rows", "seen", "head", "marks", "assumed", "resent"}
"""What only earlier versions wrote of a partition, or wrote in another form."""


@pytest.fixture
def golden(lake: LakeHarness, monkeypatch: pytest.MonkeyPatch) -> LakeHarness:
    monkeypatch.setenv(HASH_KEY_VARIABLE, HASH_KEY)
    unpack(FOLDER / "lakes" / f"{WRITTEN}.tar.xz", lake.folder)
    return lake


@pytest.fixture
def expected() -> dict[str, Any]:
    return json.loads((FOLDER / "lakes" / f"{WRITTEN}.json").read_text(encoding="utf-8"))


def test_lake_of_an_older_version_is_read_as_written(golden: LakeHarness, expected: dict[str, Any]) -> None:
    """Read rows, markers and pauses without a run, and the output of `status` and `quarantine list`."""
    assert_has(description(golden), expected["before"])


def test_lake_of_an_older_version_is_continued_without_lost_or_repeated_changes(
    golden: LakeHarness, expected: dict[str, Any]
) -> None:
    """Redelivered events, a changelog that is ahead, pending fills and rows, pauses, bad events."""
    wanted = expected["after"]
    assert sorted(resume(golden)) == expected["paused"]
    found, read = description(golden), expected["before"]["changelog"]
    for name, rows in found["changelog"].items():
        # Rows of the earlier version have no number.
        numbers = [(row, row["_change"].pop("commit", None)) for row in rows]
        assert {number for row, number in numbers if row in read.get(name, ())} <= {None}
    for kinds in found["changelog columns"].values():
        kinds["_change"] = re.sub(r", \d+: commit: optional long", "", kinds["_change"])
    # The numbers decided the order.
    for tables in (found["changelog"], wanted["changelog"]):
        tables.update({name: sorted(rows, key=_text) for name, rows in tables.items()})
    for part in ("mirror", "changelog", "mirror columns", "changelog columns"):
        assert found[part] == wanted[part]
    for part in ("mirror properties", "changelog properties", "quarantine", "pauses", "status"):
        assert_has(without_texts(found[part]), without_texts(wanted[part]))
    with golden.catalog() as catalog:
        assert validate_lake(catalog, "shop")


def assert_has(found: Any, wanted: Any, where: str = "") -> None:
    """Assert equality, but allow additional names in objects, which later versions may write."""
    match wanted:
        case dict():
            for name, value in wanted.items():
                if where.endswith("/high_water") and name in EARLIER:
                    continue
                assert name in found, f"{where}: no {name}"
                assert_has(found[name], value, f"{where}/{name}")
        case list():
            assert len(found) == len(wanted), where
            for number, pair in enumerate(zip(found, wanted, strict=True)):
                assert_has(*pair, f"{where}/{number}")
        case _:
            assert found == wanted, where


def without_texts(value: Any) -> Any:
    """Return `value` without texts for people, which may change; a list of texts becomes its length."""
    match value:
        case dict():
            kept = {
                name: len(inner) if name == "changes" and _are_texts(inner) else without_texts(inner)
                for name, inner in value.items()
                if name not in ("reason", "hint", "since_ms")
            }
            return kept | (
                {"paused": sorted(value["paused"])} if isinstance(value.get("paused"), dict) else {}
            )
        case list():
            return sorted(map(without_texts, value), key=lambda inner: json.dumps(inner, sort_keys=True))
        case _:
            return value


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(inner, str) for inner in value)


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, default=str)
