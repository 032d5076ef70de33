"""The column rules of each table, with the key of the hashes read once."""

from replicator.config.models import ColumnsConfig, Config
from replicator.errors import ConfigError
from replicator.model.columns import ColumnRules, RuleSet

_SHORTEST_KEY = 16


class ColumnRuleBook:
    """What is done to the columns of each table of a mirror."""

    def __init__(self, config: Config) -> None:
        """Raises ConfigError where columns are hashed and their key is missing or too short."""
        self._config = config
        self._key = _key(config)
        self._rules: dict[str, ColumnRules] = {}

    def of(self, table: str) -> ColumnRules:
        """The rules for `database.table`; false where there are none."""
        if table not in self._rules:
            sections = (self._config.table(table).columns, self._config.columns)
            sets = [self._set(section) for section in sections if section.has_rules]
            self._rules[table] = ColumnRules(tuple(sets))
        return self._rules[table]

    def _set(self, section: ColumnsConfig) -> RuleSet:
        masks = tuple((pattern, mask.mask()) for pattern, mask in section.mask.items())
        return RuleSet(section.include, section.exclude, section.hash, masks, self._key)


def _key(config: Config) -> bytes | None:
    if config.columns.hash_key is None:
        return None
    key = config.columns.hash_key.reveal().get_secret_value().encode()
    if len(key) < _SHORTEST_KEY:
        raise ConfigError(
            f"the key in columns.hash_key is shorter than {_SHORTEST_KEY} bytes, so hashes could be guessed back",
            "make one with: openssl rand -hex 32",
        )
    return key
