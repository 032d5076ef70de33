"""Tests replace `failpoints.reach`, which has an effect only if every module calls it as an attribute."""

import re
from pathlib import Path

import replicator

PACKAGE = Path(replicator.__file__).parent


def test_failpoints_are_called_through_their_module() -> None:
    calls = 0
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "from replicator.failpoints import" not in text, path
        calls += len(re.findall(r"failpoints\.reach\(", text))
    assert calls >= 8
