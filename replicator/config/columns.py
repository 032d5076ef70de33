"""Define the sections of the configuration about columns."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from replicator.config.secrets import Secret
from replicator.config.values import STRICT, ColumnPattern
from replicator.model.column_rules import Blank, FixedText, KeepLast, Mask

Unlisted = Literal["allow", "pause"]


class MaskConfig(BaseModel):
    """The replacement for a masked column's values: exactly one of three."""

    model_config = STRICT

    text: str | None = None
    keep_last: Annotated[int, Field(ge=1)] | None = None
    null: Literal[True] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.text, self.keep_last, self.null].count(None) != 2:
            raise ValueError('give one of { text = "***" }, { keep_last = 4 }, { null = true }')
        return self

    def mask(self) -> Mask:
        """Return the mask that the section defines."""
        if self.text is not None:
            return FixedText(self.text)
        return Blank() if self.keep_last is None else KeepLast(self.keep_last)


class ColumnsConfig(BaseModel):
    """Which columns are mirrored, and which are masked or hashed before anything is written.

    Column names, in which * and ? match any letters, regardless of letter case. A table with `unlisted = "pause"`
    pauses if it has a column that no list names; `include` then excludes no other column.
    """

    model_config = STRICT

    include: tuple[ColumnPattern, ...] = ()
    exclude: tuple[ColumnPattern, ...] = ()
    hash: tuple[ColumnPattern, ...] = ()
    mask: dict[ColumnPattern, MaskConfig] = {}
    unlisted: Unlisted | None = None

    @model_validator(mode="after")
    def _one_rule_each(self) -> Self:
        seen: set[str] = set()
        for pattern in (*self.exclude, *self.hash, *self.mask):
            if pattern.casefold() in seen:
                raise ValueError(f'"{pattern}" appears in two of exclude, hash and mask; keep one')
            seen.add(pattern.casefold())
        return self

    @property
    def has_rules(self) -> bool:
        return bool(self.include or self.exclude or self.hash or self.mask)


class MirrorColumnsConfig(ColumnsConfig):
    """`[columns]`: the column rules for all tables, and the key for all hashes."""

    hash_key: Secret | None = None
