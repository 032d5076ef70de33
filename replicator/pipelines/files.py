"""The files of pipelines beside the configuration. Without Spark."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from replicator.config import Config
from replicator.errors import PipelineError, UsageError
from replicator.pipelines.history.definition import History, histories_of
from replicator.pipelines.query.definition import Definition, parse_definition, read_definition
from replicator.pipelines.query.graph import in_order, name_of, reads, references
from replicator.pipelines.query.names import TableName
from replicator.pipelines.query.python import parse_function


@dataclass(frozen=True, slots=True)
class Broken:
    """A pipeline whose file cannot be used.

    Attributes:
        table: the table of its result, as far as its file tells.
        error: why it cannot be used.
    """

    file: str
    table: TableName
    error: PipelineError


Pipeline = Definition | History


@dataclass(frozen=True, slots=True)
class PipelineFiles:
    """The files of the pipelines of a configuration.

    Attributes:
        definitions: the pipelines, each after those that it reads.
        histories: the histories of the configuration, which are refreshed as pipelines are, and before them.
        broken: those whose file cannot be used, by name. Others can be refreshed, unless they read their results.
    """

    definitions: tuple[Definition, ...] = ()
    histories: tuple[History, ...] = ()
    broken: Mapping[str, Broken] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.definitions or self.histories or self.broken)

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The histories and the pipelines, in the order in which they are refreshed."""
        found: list[Pipeline] = [*self.histories]
        return (*found, *self.definitions)

    @property
    def results(self) -> list[TableName]:
        """The tables of all pipelines."""
        return [each.table for each in (*self.pipelines, *self.broken.values())]

    def with_inputs(self, names: Collection[str]) -> list[Pipeline]:
        """Return the named pipelines and those whose results they read, in their order; all without a name."""
        wanted = {pipeline.name for pipeline in self.pipelines if not names or pipeline.name in names}
        for reader in reversed(self.pipelines if names else ()):
            if reader.name in wanted:
                read = inputs_of(reader)
                wanted |= {p.name for p in self.pipelines if any(name.names(p.table) for name in read)}
        return [pipeline for pipeline in self.pipelines if pipeline.name in wanted]


def inputs_of(pipeline: Pipeline) -> tuple[TableName, ...]:
    """Return the tables and patterns that a pipeline reads; of a history, its mirror."""
    return (pipeline.mirror,) if isinstance(pipeline, History) else reads(pipeline)


def log_tables(config: Config) -> list[TableName]:
    """Return the log tables of a configuration, existing or not."""
    return [TableName(settings.namespace, settings.name) for settings in config.log_tables]


def readable_namespaces(config: Config, results: Collection[TableName]) -> set[str]:
    """Return the namespaces of the tables that pipelines may read; `results` are the tables that they write."""
    others = (table.namespace for table in (*results, *log_tables(config)))
    return {config.lake.namespace, config.lake.changes_namespace, *others}


def of_log_tables(files: PipelineFiles, config: Config) -> set[str]:
    """Return the names of the pipelines that read log tables alone, or results of such: none has a source position."""
    found, tables = set(), set(log_tables(config))
    # Each follows those that it reads.
    for definition in files.definitions:
        wanted = reads(definition)
        if all(not name.is_pattern and any(map(name.names, tables)) for name in wanted):
            found.add(definition.name)
            tables.add(definition.table)
    return found


def read_pipelines(config: Config) -> PipelineFiles:
    """Return the pipelines of a configuration; none if there is no folder."""
    folder, namespace = config.pipelines.folder, config.lake.pipelines_namespace
    found: dict[str, Definition] = {}
    broken: dict[str, Broken] = {}
    files = config.pipelines.files()
    for file in files:
        name, table = file.stem, TableName(namespace, file.stem)
        try:
            _refuse_file(file, folder, files)
            parse = parse_function if file.suffix == ".py" else parse_definition
            definition = read_definition(file, _shown(file), namespace, parse)
            _refuse_place(definition, config)
            table = definition.table
            reads(definition)
        except PipelineError as error:
            broken[name] = Broken(_shown(file), table, error)
        else:
            found[name] = definition
    refused = dict(_of_changelogs(found.values()))
    ordered = in_order([d for name, d in found.items() if name not in refused])
    for name, reason in {**refused, **ordered.refused}.items():
        broken[name] = Broken(found[name].file, found[name].table, reason)
    return PipelineFiles(ordered.definitions, histories_of(config), broken)


def _refuse_file(file: Path, folder: Path, files: Collection[Path]) -> None:
    """Refuse a file that is not in the folder itself, as its code is run, and two of one name.

    Raises:
        PipelineError: it is one.
    """
    if not file.resolve().is_relative_to(folder.resolve()):
        raise PipelineError.at(
            _shown(file), 1, None, f"is a link to {file.resolve()}", "copy the file into the folder"
        )
    if others := [other for other in files if other.stem == file.stem and other != file]:
        reason = f"{_shown(others[0])} is a pipeline of this name, too"
        raise PipelineError.at(_shown(file), 1, None, reason, "rename one of them, or delete it")


def _of_changelogs(definitions: Collection[Definition]) -> Iterator[tuple[str, PipelineError]]:
    """Yield the pipelines that read the changelog of a result, which is read as the result itself."""
    changelogs = {definition.table.changes: definition.table for definition in definitions}
    for definition in definitions:
        for node in references(definition.query):
            if (result := changelogs.get(name_of(node, definition))) is not None:
                reason = f"{result.changes} is the changelog of a result"
                yield definition.name, definition.error(node, reason, f"read the result: {result}")


def _refuse_place(definition: Definition, config: Config) -> None:
    """Refuse a result in the place of other tables.

    Raises:
        PipelineError: it is there.
    """
    table = definition.table
    if table.namespace in (*config.lake.namespaces, config.lake.history_namespace):
        raise definition.header_error(
            "table",
            f"{table.namespace} is a namespace of the mirror itself",
            f"name another one: {definition.setting(f'table: {config.lake.pipelines_namespace}.{table.name}')}",
        )


def _shown(file: Path) -> str:
    """Return a path as the operator would write it."""
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


def chosen(files: PipelineFiles, names: Collection[str], config: Config) -> list[Pipeline]:
    """Return the named histories and pipelines, in their order; all without a name.

    Raises:
        UsageError: there is no pipeline of a name.
        PipelineError: the file of a named one cannot be used.
    """
    known = [pipeline.name for pipeline in files.pipelines]
    for name in names:
        if name in files.broken:
            raise files.broken[name].error
        if name not in known:
            raise _no_such(name, [*known, *files.broken], config)
    return [pipeline for pipeline in files.pipelines if not names or pipeline.name in names]


def _no_such(name: str, known: Collection[str], config: Config) -> UsageError:
    folder = config.pipelines.folder
    if not known:
        return UsageError(
            f"there is no pipeline {name}: {folder} has no files NAME.sql or NAME.py",
            f"write a SELECT to {folder / name}.sql",
        )
    return UsageError(f"there is no pipeline {name}", f"pipelines: {', '.join(sorted(known))}")
