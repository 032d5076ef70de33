"""The correctness law, against the oracle: any transactions, any batches, suffixes delivered again, crashes anywhere.

At the end the mirror equals the source and the changelog has each change once.
"""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from replicator.mirror import Mirror
from tests.oracle.avro import AvroTopics
from tests.oracle.compare import assert_changelog_equals, assert_changelog_has_all, assert_mirror_equals
from tests.oracle.model import Source
from tests.spark.conftest import Lab
from tests.support.failpoints import PowerCut, power_cut

FEW = 6
EXAMPLES = int(os.environ.get("REPLICATOR_LAW_EXAMPLES", FEW))


@dataclass(frozen=True)
class Story:
    """How a source changes, how its log arrives, and how the mirror is treated meanwhile."""

    seed: int
    shapes: tuple[str, ...]
    partitions: int
    encoding: str
    transactions: int
    restarts: int
    batches: int
    crashes: tuple[int, ...]
    max_events: int
    strategy: str
    few: int
    compressed: bool
    numbered: bool
    alters: int

    @property
    def tells_repeats(self) -> bool:
        """Whether what is sent again can be told in all cases; see README, "Limits today"."""
        return not (self.compressed and self.restarts) or (self.numbered and self.encoding == "json")


stories = st.builds(
    Story,
    seed=st.integers(0, 2**32),
    shapes=st.lists(st.sampled_from(["bigint", "composite", "varchar"]), min_size=1, max_size=2).map(tuple),
    partitions=st.sampled_from([1, 2, 3]),
    encoding=st.sampled_from(["json", "json-schemas", "avro"]),
    transactions=st.integers(5, 120),
    restarts=st.integers(0, 3),
    batches=st.integers(1, 4),
    crashes=st.lists(st.integers(1, 12), max_size=2).map(tuple),
    max_events=st.sampled_from([40, 1_000_000]),
    strategy=st.sampled_from(["split", "split", "merge", "copy-on-write"]),
    # Up to so many events the driver takes: none, those of some batches, all.
    few=st.sampled_from([0, 20, 10_000]),
    compressed=st.booleans(),
    numbered=st.booleans(),
    alters=st.sampled_from([3, 15]),
)


def cuts(story: Story, ends: dict[str, dict[int, int]]) -> list[dict[str, dict[int, int]]]:
    """Growing ends of batches, each partition at a pace of its own, the last at the very end."""
    chance = random.Random(story.seed)
    marks = {
        (t, p): [*sorted(chance.randint(0, end) for _ in range(story.batches - 1)), end]
        for t, ps in ends.items()
        for p, end in ps.items()
    }
    return [{t: {p: marks[t, p][i] for p in ps} for t, ps in ends.items()} for i in range(story.batches)]


def live(lab: Lab, story: Story) -> Source:
    """Let the story happen; the lake is at the end of the log then."""
    source = Source(
        story.seed,
        partitions=story.partitions,
        with_schemas=story.encoding != "json",
        compressed=story.compressed,
        numbered=story.numbered and story.encoding == "json",
        alters=story.alters,
    )
    source.start(story.shapes, rows=8)
    source.run(story.transactions)
    avro = AvroTopics() if story.encoding == "avro" else None
    lab.write(source.delivered(story.restarts), gaps=story.seed, avro=avro)
    config = lab.config(
        apply={"max_events": story.max_events, "strategy": story.strategy, "parallel_tables": 2}
    )
    new_process: Callable[[], Mirror] = lambda: lab.mirror(config)  # noqa: E731
    mirror = new_process()
    _, ends = mirror.engine.log.offsets()
    crashes = list(story.crashes)
    for cut in cuts(story, {t: dict(ps) for t, ps in ends.items()}):
        while crashes:
            try:
                with power_cut(crashes.pop()):
                    mirror.advance(cut)
            except PowerCut:
                mirror = new_process()
            else:
                break
        mirror.advance(cut)
        assert mirror.summary().paused == {}
    return source


def assert_law(lab: Lab, story: Story) -> None:
    with patch("replicator.batch.fetch.FEW_EVENTS", story.few):
        source = live(lab, story)
    with lab.catalog() as catalog:
        for table in source.tables:
            assert_mirror_equals(catalog, "shop", table)
            same = assert_changelog_equals if story.tells_repeats else assert_changelog_has_all
            same(catalog, "shop", table)


@settings(
    max_examples=EXAMPLES,
    # The few examples of an ordinary run are always the same ones; those of a long one are not.
    derandomize=EXAMPLES <= FEW,
    deadline=None,
    # A smaller story takes as long to tell; the seed says which one it was.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(story=stories)
def test_mirror_equals_source_and_changelog_has_each_change_once(
    lab: Lab, story: Story, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_law(Lab(lab.base, Path(tmp_path_factory.mktemp("law"))), story)
