"""Build the column rules of each table; the key for hashes is read once."""

from collections.abc import Iterable
from dataclasses import replace

from replicator.config.models import Config
from replicator.config.sections import ColumnsConfig
from replicator.errors import ConfigError
from replicator.model.column_rules import ColumnRules, RuleSet

_SHORTEST_KEY = 16


class ColumnRuleBook:
    """The column rules of all tables of a mirror."""

    def __init__(self, config: Config) -> None:
        """Raise ConfigError if columns are hashed and the key is missing or too short."""
        self._config = config
        self._key = _key(config)
        self._rules: dict[str, ColumnRules] = {}

    def of(self, table: str, other_names: Iterable[str] = ()) -> ColumnRules:
        """Return the rules for `database.table`; falsy if there are none.

        `other_names` are earlier names of the table; rules for these names apply too.
        """
        own = self._of(table)
        others = (self._of(name) for name in sorted(set(other_names)) if name != table)
        elsewhere = tuple(rules for rules in others if rules and rules != own)
        return replace(own, elsewhere=elsewhere) if elsewhere else own

    def _of(self, table: str) -> ColumnRules:
        if table not in self._rules:
            waits = self._config.unlisted(table) == "pause"
            sections = (self._config.table(table).columns, self._config.columns)
            sets = [self._set(section, waits=waits) for section in sections if section.has_rules]
            self._rules[table] = ColumnRules(tuple(sets), waits)
        return self._rules[table]

    def _set(self, section: ColumnsConfig, *, waits: bool) -> RuleSet:
        masks = tuple((pattern, mask.mask()) for pattern, mask in section.mask.items())
        found = RuleSet(section.include, section.exclude, section.hash, masks, self._key)
        return replace(found, include=(), plain=section.include) if waits else found


def _key(config: Config) -> bytes | None:
    if config.columns.hash_key is None:
        return None
    key = config.columns.hash_key.reveal().get_secret_value().encode()
    if len(key) < _SHORTEST_KEY:
        raise ConfigError(
            f"the key in columns.hash_key is shorter than {_SHORTEST_KEY} bytes, so hashed values could be guessed",
            "generate one with: openssl rand -hex 32",
        )
    return key
