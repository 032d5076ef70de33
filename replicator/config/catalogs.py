"""The kinds of Iceberg catalogs: a further kind is a name in `CatalogName` and an entry of `CATALOGS`.

Spark's session, the Java libraries, PyIceberg, the checks of `[lake]` and the comparison of names read from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

CatalogName = Literal["jdbc", "rest", "hive", "glue"]


@dataclass(frozen=True, slots=True)
class Database:
    """A database that a JDBC catalog is kept in.

    Attributes:
        python: the beginning of its URLs for SQLAlchemy.
        jars: names of the further sets of Java libraries, see `jvm.jars`.
        folds_case: whether it treats names that differ only in letter case as equal.
    """

    python: str
    jars: tuple[str, ...] = ()
    folds_case: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogKind:
    """What the engine knows of a kind of catalog.

    Attributes:
        needs_uri: whether `lake.uri` is required.
        needs_warehouse: whether `lake.warehouse` is required.
        databases: name in the URI → database; if there are any, the URI is one of JDBC.
        folds_case: whether it treats names that differ only in letter case as equal.
        names_folders: whether it names the folder of a table as the table, also if the name is unsafe in a path.
        jars: names of the further sets of Java libraries, see `jvm.jars`.
        spark: further settings of Iceberg's catalog in Spark.
        python: further settings of PyIceberg's catalog; its `type` is the kind's name unless it is set here.
    """

    needs_uri: bool = True
    needs_warehouse: bool = True
    databases: Mapping[str, Database] = field(default_factory=dict)
    folds_case: bool = False
    names_folders: bool = False
    jars: tuple[str, ...] = ()
    spark: Mapping[str, str] = field(default_factory=dict)
    python: Mapping[str, str] = field(default_factory=dict)


CATALOGS: Final[Mapping[CatalogName, CatalogKind]] = {
    "jdbc": CatalogKind(
        databases={
            "sqlite": Database("sqlite:///"),
            "postgresql": Database("postgresql+psycopg2:", jars=("postgresql",)),
            "mysql": Database("mysql+pymysql:", folds_case=True),
        },
        names_folders=True,
        # Iceberg's default is the older schema, without a column for views. Iceberg adds the column to a catalog that
        # lacks it; clients that only know the older schema can still read and write such a catalog.
        spark={"jdbc.schema-version": "V1"},
        # Spark's catalog creates its tables, in its own layout; PyIceberg only reads them.
        python={"type": "sql", "init_catalog_tables": "false"},
    ),
    "rest": CatalogKind(needs_warehouse=False),
    "hive": CatalogKind(folds_case=True),
    "glue": CatalogKind(needs_uri=False, folds_case=True, jars=("aws",)),
}

FILE_IO_JARS: Final[Mapping[str, tuple[str, ...]]] = {
    "org.apache.iceberg.aws.s3.S3FileIO": ("aws",),
}
"""`io-impl` of a catalog's options → names of the sets of Java libraries that it needs."""
