"""The law of whole stories, against the oracle: whatever happens to source, log, process and lake, and in any order,
each table equals the source's at its marker and has each change once, or is paused for a reason that the story tells.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle.model import KEYLESS
from tests.support.lake_harness import LakeHarness
from tests.support.law import law
from tests.support.stories import StoryPlayer
from tests.support.story_steps import (
    AddPartition,
    Change,
    Commit,
    Compact,
    FailOver,
    RecreateTopic,
    Redeliver,
    Restart,
    RollBack,
    SnapshotAgain,
    Step,
    Story,
    UserDdl,
)

STORIES: Final = 4
TABLES: Final = (("bigint", KEYLESS), ("composite", "varchar"), ("varchar", KEYLESS))
WHERE: Final[tuple[Any, ...]] = ("mirror", "changelog", "both")
FAULTS: Final[Mapping[Callable[[random.Random], Step], int]] = {
    lambda _: Restart(): 2,
    lambda r: Redeliver(r.randint(1, 40)): 4,
    lambda r: RollBack(r.randrange(2), r.choice(WHERE), r.randint(1, 3)): 4,
    lambda r: Compact(r.randrange(2), r.choice(("spark", "maintain"))): 2,
    lambda r: UserDdl(r.randrange(2), r.choice(WHERE), r.choice(("partition", "order", "properties"))): 3,
    lambda r: RecreateTopic(r.randrange(2), snapshot=r.random() < 0.7): 2,
    lambda _: AddPartition(): 2,
    lambda r: FailOver(r.choice((0, 0, r.randint(1, 40))), r.choice((-900_000, -100, 57))): 4,
}
"""What happens beside transactions, commits and kills, with weights."""


def random_story(seed: int) -> Story:
    """Return the story of a seed: chapters of transactions, up to two faults at any place, and a commit or a kill."""
    chance = random.Random(seed)
    steps: list[Step] = [Commit(end=True)]
    for _ in range(chance.randint(2, 3)):
        kill_at = chance.randint(1, 12) if chance.random() < 0.35 else None
        chapter: list[Step] = [
            Change(chance.randint(1, 12)),
            Commit(end=chance.random() < 0.6, kill_at=kill_at),
        ]
        for fault in chance.choices(list(FAULTS), list(FAULTS.values()), k=chance.randint(0, 2)):
            chapter.insert(chance.randrange(3), fault(chance))
        steps += chapter
    format_version = chance.choice((2, 2, 3))
    # Strategies that run Spark jobs take longest.
    strategies = ("split",) * 4 + (
        ("merge",) if format_version == 3 else ("equality", "merge", "copy-on-write")
    )
    return Story(
        seed=seed,
        shapes=chance.choice(TABLES),
        partitions=chance.choice((1, 1, 2)),
        lists_partitions=chance.random() < 0.7,
        with_schemas=chance.random() < 0.5,
        strategy=chance.choice(strategies),
        format_version=format_version,
        driver_max_events=0 if chance.random() < 0.15 else 10_000,
        gtids=any(isinstance(step, FailOver) for step in steps) or chance.random() < 0.3,
        steps=tuple(steps),
    )


@pytest.mark.fault(
    "Random stories: changes, DDL, redelivery, fail-overs, kills, rollbacks, compactions, new topics and partitions",
    area="Any of them",
    on="Iceberg; events of the model",
    outcome="tables are exact at each marker and at the end, or paused for a reason that the story tells",
)
@law(STORIES)
@given(seed=st.integers(0, 2**32))
def test_every_story_ends_with_the_tables_of_the_source(
    lake: LakeHarness, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    player = StoryPlayer(LakeHarness(lake.base, Path(tmp_path_factory.mktemp("story"))), random_story(seed))
    player.play()
    assert player.checked > 0, player.story.text()


@pytest.mark.long
@law(STORIES)
@given(seed=st.integers(0, 2**32))
def test_every_story_with_a_snapshot_of_a_replica_that_lags_ends_with_the_tables_of_the_source(
    lake: LakeHarness, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    story, chance = random_story(seed), random.Random(seed + 1)
    steps = list(story.steps)
    for _ in range(chance.choice((1, 1, 2))):
        again = SnapshotAgain(chance.randint(0, 40), chance.choice((-900_000, -100, 57)))
        steps.insert(chance.randint(2, len(steps) - 1), again)
    story = replace(story, gtids=True, steps=tuple(steps))
    player = StoryPlayer(LakeHarness(lake.base, Path(tmp_path_factory.mktemp("story"))), story)
    player.play()
    assert player.checked > 0, story.text()
