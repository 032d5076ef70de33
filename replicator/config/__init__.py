"""The configuration: one TOML file per mirror, read once into frozen typed values.

config = load(Path("shop.toml"))
config.includes("shop.orders")           # is this table mirrored?
config.table("shop.orders").strategy     # one table's options, defaults filled in
"""

from replicator.config.bootstrap import BootstrapConfig, HealConfig
from replicator.config.column_rules import ColumnRuleBook
from replicator.config.columns import ColumnsConfig
from replicator.config.loading import load, parse
from replicator.config.log import ArchiveLog, KafkaLog
from replicator.config.maintenance import MaintenanceConfig
from replicator.config.models import (
    CATALOG_NAME,
    ApplyConfig,
    Config,
    LakeConfig,
    MirrorConfig,
    OnBadEvent,
    SchemaChangesConfig,
    SourceConfig,
    SparkConfig,
    Strategy,
    TableConfig,
    TableOptions,
)
from replicator.config.secrets import SecretRef
from replicator.config.tags import TagsConfig
from replicator.config.values import SourceUrl
from replicator.config.verify import DEFAULT_VERIFY, VerifyConfig

__all__ = [
    "CATALOG_NAME",
    "DEFAULT_VERIFY",
    "ApplyConfig",
    "ArchiveLog",
    "BootstrapConfig",
    "ColumnRuleBook",
    "ColumnsConfig",
    "Config",
    "HealConfig",
    "KafkaLog",
    "LakeConfig",
    "MaintenanceConfig",
    "MirrorConfig",
    "OnBadEvent",
    "SchemaChangesConfig",
    "SecretRef",
    "SourceConfig",
    "SourceUrl",
    "SparkConfig",
    "Strategy",
    "TableConfig",
    "TableOptions",
    "TagsConfig",
    "VerifyConfig",
    "load",
    "parse",
]
