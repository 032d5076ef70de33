"""What the tests of the correctness laws share: how many and how large examples they try, and how they cut a log."""

import os
import random
from collections.abc import Mapping

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

_VARIABLE = "REPLICATOR_LAW_EXAMPLES"


def law(examples: int) -> settings:
    """Return the settings of a law that tries a number of examples, or as many as a long run demands."""
    tried = int(os.environ.get(_VARIABLE, examples))
    return settings(
        max_examples=tried,
        # The examples of an ordinary run are always the same; those of a long run differ.
        derandomize=tried <= examples,
        deadline=None,
        # A smaller scenario takes as long, so shrinking is useless; the seed identifies a scenario.
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


def size(smallest: int, largest: int) -> st.SearchStrategy[int]:
    """Return the numbers from which a law draws a size; an ordinary run, which has two cores, draws from a third."""
    return st.integers(smallest, largest if _VARIABLE in os.environ else max(smallest, largest // 3))


def cuts(seed: int, batches: int, ends: Mapping[str, Mapping[int, int]]) -> list[dict[str, dict[int, int]]]:
    """Return increasing end offsets for each batch; the last one is the end of all partitions."""
    chance = random.Random(seed)
    bounds = {
        (t, p): [*sorted(chance.randint(0, end) for _ in range(batches - 1)), end]
        for t, ps in ends.items()
        for p, end in ps.items()
    }
    return [{t: {p: bounds[t, p][i] for p in ps} for t, ps in ends.items()} for i in range(batches)]
