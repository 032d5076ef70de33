"""What refreshes of a result took, by which `refresh: auto` chooses between changes and the whole. Without Spark."""

from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from replicator.model.recorded import Count, Record

COSTS_KEY: Final = "replicator.pipeline-costs"
"""Table property of a result: its `Costs`. Described in schemas/pipeline-costs-v1.json."""
_KEPT: Final = 8
_FADES: Final = 0.9


@dataclass(frozen=True, slots=True)
class Costs(Record):
    """What refreshes took, up to their commits.

    Attributes:
        fingerprint: that of the definition; the costs of another one say nothing.
        whole: milliseconds of the newest computations as a whole, oldest first.
        changes: the same of the newest refreshes by changes, each after the number of images of changes that it read.
    """

    WHAT = "the costs of a pipeline"
    SEPARATORS = (",", ":")
    fingerprint: str
    whole: tuple[Count, ...] = ()
    changes: tuple[tuple[Count, Count], ...] = ()

    @classmethod
    def of(cls, text: str | None, fingerprint: str) -> "Costs":
        """Return what a table records of a definition. What cannot be read is as nothing."""
        try:
            known = cls(fingerprint) if text is None else cls.from_json(text)
        except ValueError:
            return cls(fingerprint)
        return known if known.fingerprint == fingerprint else cls(fingerprint)

    def after_whole(self, seconds: float) -> "Costs":
        """Return the costs after a computation as a whole.

        What is known of changes fades a little, so that they are tried again some time.
        """
        faded = tuple((images, int(ms * _FADES)) for images, ms in self.changes)
        return replace(self, whole=(*self.whole, _ms(seconds))[-_KEPT:], changes=faded)

    def after_changes(self, images: int, seconds: float) -> "Costs":
        """Return the costs after a refresh by changes."""
        return replace(self, changes=(*self.changes, (images, _ms(seconds)))[-_KEPT:])

    def seconds_whole(self) -> float | None:
        """Return what the whole takes; None if that is unknown."""
        return median(self.whole) / 1000 if self.whole else None

    def seconds_for(self, images: int) -> float | None:
        """Return what a refresh by this number of images takes: at most in proportion to earlier ones."""
        found = [ms * max(1.0, images / max(known, 1)) for known, ms in self.changes]
        return median(found) / 1000 if found else None

    def cheaper_whole(self, images: int) -> str | None:
        """Return why the whole is cheaper than changes with this number of images; None if it is not known to be."""
        whole, changes = self.seconds_whole(), self.seconds_for(images)
        if whole is None or changes is None or changes <= whole:
            return None
        return f"{images:,} images of changes would take about {changes:,.1f} s, and the whole {whole:,.1f} s"


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
