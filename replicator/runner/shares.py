"""Divide the events that one round may read among the tables, so that a large backlog delays no other table. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from replicator.batch import TableTask, begun_ends, first_part, first_ranges
from replicator.model.commit_marker import OffsetRange

T = TypeVar("T")

_FIRST_SLICE: Final = 100_000
_SHORTEST_S: Final = 2.0
_GROWTH: Final = 2.0


def fair_shares(missing: Mapping[T, int], budget: int, least: int) -> dict[T, int]:
    """Divide `budget` among tables that lack `missing` events: equally, except that no table gets more than it lacks.

    A table that lacks more gets at least `least`, even if the budget is exceeded: a commit of fewer events costs as
    much.
    """
    level, left = max(budget, 0), len(missing)
    remaining = level
    for count in sorted(missing.values()):
        if count * left > remaining:
            level = remaining // left
            break
        remaining, left = remaining - count, left - 1
    level = max(level, least)
    return {table: min(count, level) for table, count in missing.items()}


@dataclass(frozen=True, slots=True)
class Pace:
    """How many events of backlogs a round may read beside the events of other tables.

    Attributes:
        events: the number for the next round.
        trigger: seconds between two batches, as configured.
    """

    trigger: float
    events: int = _FIRST_SLICE

    def after(self, events: int, seconds: float, round_seconds: float) -> "Pace":
        """Return the pace after a round of `round_seconds`, in which `events` of backlogs took `seconds`.

        Backlogs may take the time between two batches, or half of a round if that is longer.
        """
        allowed = max(self.trigger, _SHORTEST_S, round_seconds / 2)
        factor = min(allowed / max(seconds, 0.001), _GROWTH)
        return Pace(self.trigger, max(1, round(events * factor)))


@dataclass(frozen=True, slots=True)
class Missing:
    """What the lake lacks of one table's topic: at least one event.

    Attributes:
        waits: the table cannot be processed now, and must not take the share of another one.
    """

    ranges: tuple[OffsetRange, ...]
    waits: bool = False

    @property
    def count(self) -> int:
        """Number of offsets, gaps included."""
        return sum(r.count for r in self.ranges)


@dataclass(frozen=True, slots=True)
class Round:
    """How far the tables are read in one round.

    Attributes:
        ends: the end offsets of all topics.
        sliced: topic → number of events, of the topics of which only a part is read, of tables that can be processed.
        left: number of events that later rounds must read.
        following: topic → what the next round is expected to read, so that Spark's workers may begin some of it: of the
            topics in `sliced`, if no other table has events.
    """

    ends: Mapping[str, Mapping[int, int]]
    sliced: Mapping[str, int]
    left: int
    following: Mapping[str, tuple[OffsetRange, ...]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether the round ends at the goal."""
        return self.left == 0


def plan_round(
    goal: Mapping[str, Mapping[int, int]],
    missing: Mapping[str, Missing],
    *,
    max_events: int,
    least: int,
    paced: int,
    begun: Mapping[str, Sequence[OffsetRange]] | None = None,
) -> Round:
    """Return how far each topic of `goal` is read in the next round, if the lake lacks `missing` (by topic).

    What was `begun` (by topic) is in the share of its topic, if it is a part of what is missing.

    A table that lacks at most `least` events is read completely. The others have a backlog. They share `paced` events
    if the round has events of other tables, else `max_events`. Of a table that waits, at most `least` events are read,
    as soon as it can be processed.
    """
    least = min(max(least, 1), max_events)
    counts = {topic: m.count for topic, m in missing.items() if not m.waits}
    backlogs = {topic: count for topic, count in counts.items() if count > least}
    only_backlogs = len(backlogs) == len(counts)
    budget = max_events if only_backlogs else min(paced, max_events)
    shares = {topic: min(m.count, least) for topic, m in missing.items()}
    shares |= fair_shares(backlogs, budget, least)
    ends = dict(goal)
    for topic, share in shares.items():
        part = begun_ends(missing[topic].ranges, (begun or {}).get(topic, ())) if topic in backlogs else None
        own = first_part(missing[topic].ranges, share)
        ends[topic] = {**goal[topic], **own, **{p: max(end, own[p]) for p, end in (part or {}).items()}}
    rests = {topic: _rest(missing[topic].ranges, ends[topic]) for topic in backlogs}
    sliced = {topic: backlogs[topic] - sum(r.count for r in rest) for topic, rest in rests.items() if rest}
    following = {topic: first_ranges(rests[topic], share) for topic, share in sliced.items() if only_backlogs}
    left = sum(goal[t][p] - end for t in shares for p, end in ends[t].items())
    return Round(ends, sliced, left, following)


def _rest(ranges: Sequence[OffsetRange], ends: Mapping[int, int]) -> tuple[OffsetRange, ...]:
    left = (replace(r, start=ends[r.partition]) for r in ranges)
    return tuple(r for r in left if r.count)


def small_and_large(tasks: Sequence[list[TableTask]]) -> list[Sequence[list[TableTask]]]:
    """Divide the tables of a batch into those whose records were fetched, and others, which Spark's executors may do.

    The first ones are done first: few events do not wait for many ones, and their plans, of which each table has its
    own, are not compiled because of the others.
    """
    small = [of_table for of_table in tasks if all(task.records is not None for task in of_table)]
    large = [of_table for of_table in tasks if any(task.records is None for task in of_table)]
    return [group for group in (small, large) if group]
