"""Random values of the web shop, including its clock: the same for the same seed."""

import json
import random
import uuid
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TypeVar

FIRST = (
    "Ada",
    "Björn",
    "Chloé",
    "Đặng",
    "Ελένη",
    "Farid",
    "Grzegorz",
    "花子",
    "Iñigo",
    "Jürgen",
    "Olga",
    "🦊 Fox",
)
LAST = ("O'Neil", "Nuñez", "Müller", "Søndergård", "Иванова", "Tanaka", "de la Cruz", "Ng", "Çelik", "Smith")
CITIES = (
    ("Lisboa", "PT"),
    ("København", "DK"),
    ("Zürich", "CH"),
    ("Kraków", "PL"),
    ("São Paulo", "BR"),
    ("東京", "JP"),
)
WORDS = (
    "light",
    "oak",
    "steel",
    "travel",
    "garden",
    "classic",
    "mini",
    "café",
    "night",
    "blue",
    "family",
    "quiet",
)
TAGS = ("new", "sale 🎉", "eco", "gift", "last chance", "naïve")

T = TypeVar("T")


class Values:
    """One stream of random values; the times of `now` always increase."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._clock = datetime(2024, 2, 28, 8)  # noqa: DTZ001 - a wall clock, in UTC

    def now(self) -> datetime:
        """Return a time some seconds after the last one, with microseconds."""
        self._clock += timedelta(microseconds=self.random.randint(1, 40_000_000))
        return self._clock

    def maybe(self, value: T, chance: float = 0.7) -> T | None:
        """Return `value` with probability `chance`, else None."""
        return value if self.random.random() < chance else None

    def money(self, low: int, high: int) -> Decimal:
        """Return an amount with two decimals."""
        return Decimal(self.random.randint(low * 100, high * 100)) / 100

    def words(self, low: int, high: int) -> str:
        """Return `low` to `high` words."""
        return " ".join(self.random.choices(WORDS, k=self.random.randint(low, high)))

    def day(self) -> date:
        """Return a date of birth."""
        return date(1950, 1, 1) + timedelta(days=self.random.randint(0, 25_000))

    def name(self) -> str:
        """Return a person's name, in any script."""
        return f"{self.random.choice(FIRST)} {self.random.choice(LAST)}"

    def city(self) -> tuple[str, str]:
        """Return a city and the code of its country."""
        return self.random.choice(CITIES)

    def sku(self) -> str:
        """Return a new product code."""
        return f"SKU-{self.random.getrandbits(40):010X}"

    def uuid(self) -> uuid.UUID:
        """Return a version 4 UUID."""
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    def preferences(self) -> str:
        """Return a JSON document with most kinds of JSON values."""
        return json.dumps(
            {
                "theme": self.random.choice(("dark", "light")),
                "limit": self.random.choice((10, 20.5, -1, None, 10**12)),
                "tags": self.random.sample(TAGS, self.random.randint(0, 3)),
                "nested": {"b": True, "a": self.words(1, 2)},
            },
            ensure_ascii=self.random.random() < 0.5,
        )
