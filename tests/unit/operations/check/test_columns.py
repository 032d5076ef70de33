"""Checks of the column rules against the tables of the source."""

from typing import Any

import pytest

from replicator.operations.check.source_facts import Grants, SourceFacts, TableFacts
from replicator.operations.check.tables import check_columns
from tests.support.config import minimal_config

FACTS = SourceFacts(
    "u@%",
    {},
    Grants(),
    (
        TableFacts("shop", "users", columns=("id", "Email", "note"), key_columns=("id",)),
        TableFacts("shop", "orders", columns=("no", "email"), key_columns=("no",)),
    ),
)


def checked(
    monkeypatch: pytest.MonkeyPatch, rules: dict[str, Any], **table: Any
) -> list[tuple[str, str, str]]:
    monkeypatch.setenv("HASH_KEY", "k" * 16)
    config = minimal_config(
        columns=rules | {"hash_key": {"env": "HASH_KEY"}}, table=[{"name": "shop.users", **table}]
    )
    return [(r.name, r.status, r.found) for r in check_columns(FACTS, config)]


def test_check_columns_reports_excluded_or_masked_key_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(monkeypatch, {"mask": {"id": {"null": True}}, "exclude": ["no"]})
    assert found == [("columns: keys", "fail", "excluded or masked: shop.users.id, shop.orders.no")]


def test_check_columns_names_unlisted_columns_that_would_pause_a_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = {"hash": ["email"], "include": ["id"], "unlisted": "pause"}
    assert checked(monkeypatch, rules) == [
        (
            "columns: unlisted",
            "fail",
            'these tables would pause (unlisted = "pause"): no rule lists shop.users.note, shop.orders.no',
        )
    ]
    listed = checked(monkeypatch, rules | {"include": ["id", "no"]}, columns={"exclude": ["note"]})
    assert listed == [("columns: rules", "ok", "match 2 tables")]
