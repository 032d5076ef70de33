"""The Java classes that the engine calls, through py4j."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any, Final

from py4j.java_gateway import JavaClass, JavaMember
from py4j.protocol import STATIC_PREFIX, Py4JError

from replicator.model.types import VECTOR, LakeType

_EXECUTORS: Final = "com.google.common.util.concurrent.MoreExecutors"


def each_of(iterable: Any) -> Iterator[Any]:
    """Yield what one of Iceberg's closeable iterables has, then close it."""
    with closing(iterable):
        iterator = iterable.iterator()
        while iterator.hasNext():
            yield iterator.next()


class StaticMembers:
    """The static members of a Java class, each looked up only once; Py4J looks them up in each call."""

    def __init__(self, java_class: Any) -> None:
        self._class: Any = java_class

    def __call__(self, *arguments: Any) -> Any:
        """Create an object of the class."""
        return self._class(*arguments)

    def __getattr__(self, name: str) -> Any:
        """Look up a static member."""
        try:
            member = getattr(self._class, name)
        except Py4JError:
            # Of methods with one name, Py4J looks at the first that Java lists, in no defined order. If that one is of
            # objects, it says that there is none.
            target = STATIC_PREFIX + self._class._fqn  # noqa: SLF001 no public way
            member = JavaMember(name, None, target, self._class._gateway_client)  # noqa: SLF001
        if isinstance(member, JavaClass):
            member = StaticMembers(member)
        setattr(self, name, member)
        return member

    def array(self, gateway: Any, values: Sequence[Any]) -> Any:
        """Return a Java array of the class."""
        array = gateway.new_array(self._class, len(values))
        for i, value in enumerate(values):
            array[i] = value
        return array


def _class(jvm: Any, name: str) -> StaticMembers:
    return StaticMembers(getattr(jvm, name))


class JavaClasses:
    """The Java classes that the engine calls, each looked up once.

    PySpark resolves a dotted path with one JVM call for each of its parts, and for each part that is not a class Java
    searches all libraries.
    """

    def __init__(self, jvm: Any) -> None:
        iceberg = "org.apache.iceberg."
        self.namespace = _class(jvm, iceberg + "catalog.Namespace")
        self.table_identifier = _class(jvm, iceberg + "catalog.TableIdentifier")
        self.schema_parser = _class(jvm, iceberg + "SchemaParser")
        self.partition_spec_parser = _class(jvm, iceberg + "PartitionSpecParser")
        self.metadata_parser = _class(jvm, iceberg + "TableMetadataParser")
        self.types = _class(jvm, iceberg + "types.Types")
        self.single_values = _class(jvm, iceberg + "SingleValueParser")
        self.conversions = _class(jvm, iceberg + "types.Conversions")
        self.expressions = _class(jvm, iceberg + "expressions.Expressions")
        self.file_metadata = _class(jvm, iceberg + "FileMetadata")
        self.manifest_files = _class(jvm, iceberg + "ManifestFiles")
        self.metrics_config = _class(jvm, iceberg + "MetricsConfig")
        self.metrics = _class(jvm, iceberg + "Metrics")
        self.data_files = _class(jvm, iceberg + "DataFiles")
        self.parquet_util = _class(jvm, iceberg + "parquet.ParquetUtil")
        self.rewrite_coordinator = _class(jvm, iceberg + "spark.FileRewriteCoordinator")
        self.spark_actions = _class(jvm, iceberg + "spark.actions.SparkActions")
        self.scan_tasks = _class(jvm, iceberg + "spark.ScanTaskSetManager")
        self.file_scan_task = _class(jvm, iceberg + "BaseFileScanTask")
        self.delete_file = _class(jvm, iceberg + "DeleteFile")
        self.delete_loader = _class(jvm, iceberg + "data.BaseDeleteLoader")
        self.vector_writer = _class(jvm, iceberg + "deletes.BaseDVFileWriter")
        self.position_delete_index = _class(jvm, iceberg + "deletes.PositionDeleteIndex")
        self.output_file_factory = _class(jvm, iceberg + "io.OutputFileFactory")
        self.file_format = _class(jvm, iceberg + "FileFormat")
        self.partition_spec = _class(jvm, iceberg + "PartitionSpec")
        self.update_requirement = _class(jvm, iceberg + "UpdateRequirement")
        self.update_requirements = _class(jvm, iceberg + "UpdateRequirements")
        self.update_table_request = _class(jvm, iceberg + "rest.requests.UpdateTableRequest")
        self.rest_errors = _class(jvm, iceberg + "rest.ErrorHandlers")
        self.functions = _class(jvm, "com.google.common.base.Functions")
        self.calling_thread: Any = _class(jvm, _EXECUTORS).newDirectExecutorService()
        """An ExecutorService that does each task at once, in the thread that passes it."""
        self.residual_evaluator = _class(jvm, iceberg + "expressions.ResidualEvaluator")
        self.spark_util = _class(jvm, iceberg + "spark.Spark3Util")
        self.for_spark = SparkClasses(jvm)
        self.spark_schemas = _class(jvm, iceberg + "spark.SparkSchemaUtil")
        self.collections = _class(jvm, "java.util.Collections")
        self.hash_map = _class(jvm, "java.util.HashMap")
        self.array_list = _class(jvm, "java.util.ArrayList")
        self.string = _class(jvm, "java.lang.String")
        self.java_class = _class(jvm, "java.lang.Class")
        self._json: Any = _class(jvm, "com.fasterxml.jackson.databind.ObjectMapper")()
        self.byte_stream = _class(jvm, "java.io.ByteArrayInputStream")
        self.stream = _class(jvm, "java.util.stream.Stream")
        parquet = iceberg + "shaded.org.apache.parquet."
        options = _class(jvm, parquet + "ParquetReadOptions").builder().build()
        converter = _class(jvm, parquet + "format.converter.ParquetMetadataConverter")
        self.parquet_footers: Any = converter(options)

    def delete_in_calling_thread(self) -> None:
        """Let Iceberg delete files of Hadoop's file systems in the calling thread, for the life of the Java process.

        Each commit deletes the oldest metadata file, and would wait 10 ms for a pool's thread. It is for lakes on a
        local disk, and for a process that never deletes thousands of files. Iceberg has no public way to set its pool.
        """
        name = "org.apache.iceberg.hadoop.HadoopFileIO"
        pool: Any = self.java_class.forName(name).getDeclaredField("executorService")
        pool.setAccessible(True)
        pool.set(None, self.calling_thread)

    def texts(self, values: Any) -> dict[str, str]:
        """Return a Java map of texts, by one call of Java in place of one for each entry."""
        found: dict[str, str] = json.loads(self._json.writeValueAsString(values))
        return found

    def type_of(self, lake_type: LakeType) -> Any:
        """Return Iceberg's Java object of a type."""
        if lake_type == VECTOR:
            # Iceberg assigns the element's field id itself when the column is added.
            return self.types.ListType.ofOptional(1, self.types.FloatType.get())
        return self.types.fromPrimitiveString(str(lake_type))


@lru_cache(1)
def classes_of(jvm: Any) -> JavaClasses:
    """Return the classes of a Java process."""
    return JavaClasses(jvm)


class SparkClasses:
    """The Java classes with which Spark gets a table that no catalog has."""

    def __init__(self, jvm: Any) -> None:
        iceberg, spark = "org.apache.iceberg.", "org.apache.spark.sql."
        self.table_metadata = _class(jvm, iceberg + "TableMetadata")
        self.transactions = _class(jvm, iceberg + "Transactions")
        self.base_table = _class(jvm, iceberg + "BaseTable")
        self.table = _class(jvm, iceberg + "spark.source.SparkTable")
        self.rewrite_table = _class(jvm, iceberg + "spark.source.SparkRewriteTable")
        self.table_cache = _class(jvm, iceberg + "spark.SparkTableCache")
        self.relation = _class(jvm, spark + "execution.datasources.v2.DataSourceV2Relation")
        self.dataset = _class(jvm, spark + "classic.Dataset")
        self.options = _class(jvm, spark + "util.CaseInsensitiveStringMap")
        self.option = _class(jvm, "scala.Option")
