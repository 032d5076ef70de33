"""Column rules in the configuration file."""

from pathlib import Path

import pytest

from replicator.config import ColumnRuleBook
from replicator.errors import ConfigError
from replicator.model.column_rules import Exclude
from replicator.model.table import SourceName
from replicator.model.transforms import Blank, FixedText, KeepLast, KeyedHash
from tests.support.config_files import GOOD, load_text, mistakes_in

COLUMNS = """
[columns]
hash = ["email"]
hash_key = { env = "HASH_KEY" }
mask = { card = { keep_last = 4 } }

[[table]]
name = "shop.users"
key = ["id"]
columns = { include = ["id", "e*", "note", "born"], mask = { "n?te" = { text = "***" }, born = { null = true } } }
"""


def test_column_rule_book_requires_a_hash_key_of_16_bytes(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_text(file, GOOD + COLUMNS)
    with pytest.raises(ConfigError, match="HASH_KEY is not set"):
        ColumnRuleBook(config)
    monkeypatch.setenv("HASH_KEY", "too short")
    with pytest.raises(ConfigError, match="shorter than 16 bytes") as caught:
        ColumnRuleBook(config)
    assert "too short" not in str(caught.value)
    monkeypatch.setenv("HASH_KEY", "k" * 16)
    book = ColumnRuleBook(config)
    users, orders = book.of("shop.users"), book.of("shop.orders")
    assert users.rule_of("name") == Exclude()
    assert (users.rule_of("NOTE"), users.rule_of("born")) == (FixedText("***"), Blank())
    assert users.rule_of("Email") == users.rule_of("email") == orders.rule_of("email") == KeyedHash(b"k" * 16)
    assert orders.rule_of("card") == KeepLast(4)
    assert not ColumnRuleBook(load_text(file, GOOD)).of("shop.users")


UNLISTED = """
[columns]
include = ["id"]
unlisted = "pause"

[[table]]
name = "shop.users"
key = ["no"]
columns = { mask = { note = { null = true } } }

[[table]]
name = "shop.bills"
columns = { unlisted = "allow" }
"""


def test_column_rule_book_returns_unlisted_columns_when_configured(file: Path) -> None:
    book = ColumnRuleBook(load_text(file, GOOD + UNLISTED))
    names = [SourceName(name, name) for name in ("id", "Note", "no")]
    assert book.of("shop.users").unlisted(names) == ["no"]
    assert book.of("shop.users").rule_of("no") is None, "include leaves out no column, the table waits"
    assert book.of("shop.items").unlisted(names) == ["Note", "no"]
    assert book.of("shop.bills").unlisted(names) == []
    assert book.of("shop.bills").rule_of("no") == Exclude()


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ('exclude = ["a"]\nhash = ["A"]', '"A" appears in two of exclude, hash and mask; keep one'),
        ("mask = { a = {} }", 'give one of { text = "***" }, { keep_last = 4 }, { null = true }'),
        ("mask = { a = { keep_last = 0 } }", "must be at least 1, not 0"),
        ('mask = { a = { text = "x", null = true } }', "give one of"),
        ('hash = ["a"]', 'column "a" is hashed, but no key is set; set hash_key'),
        ('hash_key = "hunter2"', "secrets must not be written in this file"),
        ('exclude = [""]', "is not a column name"),
        (
            'exclude = ["i*"]',
            'column "id" is in the key, so it cannot be excluded or masked; hash it instead',
        ),
        ('include = ["total"]', 'column "id" is in the key'),
        ("mask = { ID = { keep_last = 1 } }", 'column "id" is in the key'),
    ],
)
def test_load_reports_mistakes_in_column_rules_without_secrets(file: Path, rules: str, expected: str) -> None:
    keyed = '[[table]]\nname = "shop.users"\nkey = ["id"]\n'
    (line,) = mistakes_in(file, f"{GOOD}\n[columns]\n{rules}\n{keyed}")
    assert expected in line
    assert "hunter2" not in line
