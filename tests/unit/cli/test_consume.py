"""`replicator consume` on a lake that an earlier version of the engine wrote."""

import json
import os
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.golden import FOLDER
from tests.support.mirror import COMMAND
from tests.support.packed_lake import unpack

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "consume-changes.md"
ITEMS = [
    ("INSERT", {"id": 1, "name": "x"}),
    ("INSERT", {"id": 2, "name": "x"}),
    ("UPDATE_BEFORE", {"id": 1, "name": "x"}),
    ("UPDATE_AFTER", {"id": 1, "name": "y"}),
    ("INSERT", {"id": 3, "name": "x"}),
]
"""All changes of shop.items; its mirror has the first two, because its process was killed."""


@pytest.fixture
def golden(config: Path) -> Path:
    unpack(FOLDER / "lakes" / "0.1.0.tar.xz", config.parent)
    return config


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def changes(text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(line["change"]["kind"], line["row"]) for line in lines(text) if line["type"] == "change"]


def test_rows_of_the_mirror_and_then_the_changes_that_it_lacks(cli: Any, golden: Path) -> None:
    found = cli("consume", "shop.items").out
    assert [line["row"] for line in lines(found) if line["type"] == "row"] == [
        {"id": 1, "name": "x"},
        {"id": 2, "name": "x"},
    ]
    assert changes(found) == ITEMS[2:]
    assert lines(found)[-1]["type"] == "cursor"


@pytest.mark.parametrize("table", ["items", "orders", "visits"])
def test_command_continues_from_each_of_its_cursors(cli: Any, golden: Path, table: str) -> None:
    arguments = ("consume", f"shop.{table}", "--batch-rows", "1")
    everything = lines(cli(*arguments, "--from", "changelog").out)
    cursors = [number for number, line in enumerate(everything) if line["type"] == "cursor"]
    file = golden.parent / "one.cursor"
    for number in cursors:
        file.write_text(json.dumps(everything[number]["cursor"]))
        assert lines(cli(*arguments, "--from", str(file)).out) == everything[number + 1 :]


def test_values_are_exact(cli: Any, golden: Path) -> None:
    rows = [line["row"] for line in lines(cli("consume", "shop.orders").out) if line["type"] == "row"]
    (one,) = (row for row in rows if row["id"] == 5)
    assert one == {
        "id": 5,
        "customer": "ö5",
        "amount": "9999999999.99",
        "seen": "1970-01-01T00:00:05.000005",
        "paid": "2023-11-14T22:13:25.500000+00:00",
    }


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("shop.nothing",), 2, "has no changelog"),
        (("shop.items", "--from", "yesterday"), 2, "not a readable file"),
        (("shop.items", "--from", "replicator.toml"), 2, "not a cursor"),
        (("shop.clicks",), 2, "has no mirror"),
        (("shop.invoices",), 2, "has no changelog"),
    ],
)
def test_wrong_use_is_explained(
    cli: Any, golden: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = cli("consume", *arguments)
    assert done.code == code
    assert message in done.err
    assert "next:" in done.err


def test_program_of_the_guide_keeps_a_copy(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program in docs/how-to/consume-changes.md, twice."""
    text = GUIDE.read_text(encoding="utf-8")
    program = next(
        block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "sqlite3" in block
    )
    golden.rename(golden.with_name("shop.toml"))
    monkeypatch.chdir(golden.parent)
    copies = []
    for _ in range(2):
        exec(program, {})
        with closing(sqlite3.connect("copy.db")) as database:
            copies.append(database.execute("SELECT id, content FROM orders ORDER BY id").fetchall())
    assert [number for number, _ in copies[0]] == [1, 2, 4, 5]
    assert json.loads(copies[0][3][1])["customer"] == "ö5"
    assert copies[0] == copies[1]


def test_reader_that_has_seen_enough_is_no_error(golden: Path) -> None:
    command = [COMMAND, "consume", "shop.orders", "--from", "changelog", "--batch-rows", "1"]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as output:
        done = subprocess.run(
            [*command, "-c", str(golden)], stdout=output, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert (done.returncode, done.stderr) == (0, b"")
