"""The configuration: one TOML file per mirror, read once into frozen typed values.

config = load(Path("shop.toml"))
config.includes("shop.orders")           # is this table mirrored?
config.table("shop.orders").strategy     # one table's options, defaults filled in
"""

from replicator.config.column_rules import ColumnRuleBook
from replicator.config.loading import load, parse
from replicator.config.models import (
    CATALOG_NAME,
    ApplyConfig,
    Config,
    LakeConfig,
    SourceConfig,
    Strategy,
    TableOptions,
)
from replicator.config.secrets import SecretRef
from replicator.config.sections import (
    DEFAULT_VERIFY,
    ArchiveLog,
    HealConfig,
    KafkaLog,
    MaintenanceConfig,
    SchemaChangesConfig,
)
from replicator.config.values import SourceUrl

__all__ = [
    "CATALOG_NAME",
    "DEFAULT_VERIFY",
    "ApplyConfig",
    "ArchiveLog",
    "ColumnRuleBook",
    "Config",
    "HealConfig",
    "KafkaLog",
    "LakeConfig",
    "MaintenanceConfig",
    "SchemaChangesConfig",
    "SecretRef",
    "SourceConfig",
    "SourceUrl",
    "Strategy",
    "TableOptions",
    "load",
    "parse",
]
