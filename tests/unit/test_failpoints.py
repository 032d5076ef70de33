"""Every place where tests may let the process die is one that they know of."""

from pathlib import Path

import replicator
from tests.support.failpoints import PLACES_OF_REACH

ROOT = Path(replicator.__file__).parents[1]


def test_the_law_cuts_every_module_that_can_be_cut() -> None:
    found = {
        ".".join((*path.relative_to(ROOT).with_suffix("").parts, "reach"))
        for path in (ROOT / "replicator").rglob("*.py")
        if "from replicator.failpoints import reach" in path.read_text(encoding="utf-8")
    }
    assert found == set(PLACES_OF_REACH)
