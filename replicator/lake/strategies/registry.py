"""The write strategies by their names in the configuration.

A further one is a class, an entry here, and its name in `config.models.Strategy`.
"""

from collections.abc import Mapping
from typing import Final

from replicator.config import Strategy
from replicator.lake.strategies.changes import WriteStrategy
from replicator.lake.strategies.equality import Equality
from replicator.lake.strategies.merge import Merge
from replicator.lake.strategies.split import Split

SPLIT: Final = Split()
"""Is exact for every table to which nobody else added columns."""

MERGE: Final = Merge("merge-on-read")
"""Is exact for every table with a key."""

STRATEGIES: Final[Mapping[Strategy, WriteStrategy]] = {
    "split": SPLIT,
    "merge": MERGE,
    "copy-on-write": Merge("copy-on-write"),
    "equality": Equality(),
}
