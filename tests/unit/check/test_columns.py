"""Do column rules fit the tables?"""

from pathlib import Path
from typing import Any

import pytest

from replicator.check.columns import check_columns
from replicator.check.grants import parse_grants
from replicator.check.source_facts import SourceFacts, TableFacts
from replicator.config import parse

FACTS = SourceFacts(
    "u@%",
    {},
    parse_grants([]),
    (
        TableFacts("shop", "users", columns=("id", "Email", "note"), key_columns=("id",)),
        TableFacts("shop", "orders", columns=("no", "email"), key_columns=("no",)),
    ),
)


def checked(
    monkeypatch: pytest.MonkeyPatch, rules: dict[str, Any], **table: Any
) -> list[tuple[str, str, str]]:
    monkeypatch.setenv("HASH_KEY", "k" * 16)
    config = parse(
        {
            "mirror": {"name": "shop"},
            "source": {"tables": ["shop.*"]},
            "log": {"kind": "archive", "path": "a"},
            "lake": {"catalog": "rest", "uri": "http://c", "namespace": "shop"},
            "columns": rules | {"hash_key": {"env": "HASH_KEY"}},
            "table": [{"name": "shop.users", **table}],
        },
        base=Path("/nowhere"),
    )
    return [(r.name, r.status, r.found) for r in check_columns(FACTS, config)]


def test_rules_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked(monkeypatch, {}) == []
    assert checked(monkeypatch, {"hash": ["EMAIL", "i?"]}) == [("columns: rules", "ok", "fit 2 tables")]
    assert checked(monkeypatch, {}, columns={"exclude": ["note"]}) == [
        ("columns: rules", "ok", "fit 1 tables")
    ]


def test_a_misspelt_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(monkeypatch, {"hash": ["emial"]}, columns={"exclude": ["note", "no"]})
    assert found == [("columns: rules", "warn", "no column is called emial, no")]


def test_lost_keys_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(monkeypatch, {"mask": {"id": {"null": True}}, "exclude": ["no"]})
    assert found == [("columns: keys", "fail", "to be left out or masked: shop.users.id, shop.orders.no")]
