"""The files of pipelines beside the configuration. Without Spark."""

from collections.abc import Collection, Iterator, Mapping, Sequence
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

    def chosen(self, names: Collection[str]) -> list[Pipeline]:
        """Return the histories and pipelines of these names; all without a name."""
        return [pipeline for pipeline in self.pipelines if not names or pipeline.name in names]

    def results(self, namespace: str) -> list[TableName]:
        """Return the tables of all pipelines; `namespace` is the usual one."""
        results = (d.output(namespace) for d in self.definitions)
        return [*(h.table for h in self.histories), *results, *(b.table for b in self.broken.values())]

    def chosen_histories(self, names: Collection[str], wanted: Sequence[Definition]) -> list[History]:
        """Return the named histories, and those that pipelines read; all without a name."""
        read = [name for definition in wanted for name in reads(definition)]
        return [
            h
            for h in self.histories
            if not names or h.name in names or any(name.names(h.table) for name in read)
        ]


def log_tables(config: Config) -> list[TableName]:
    """Return the log tables of a configuration, existing or not."""
    return [TableName(settings.namespace, settings.name) for settings in config.log_tables]


def of_log_tables(files: PipelineFiles, config: Config) -> set[str]:
    """Return the names of the pipelines that read log tables alone, or results of such: none has a source position."""
    found, tables = set(), set(log_tables(config))
    # Each follows those that it reads.
    for definition in files.definitions:
        wanted = reads(definition)
        if all(not name.is_pattern and any(map(name.names, tables)) for name in wanted):
            found.add(definition.name)
            tables.add(definition.output(config.lake.pipelines_namespace))
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
            definition = read_definition(file, _shown(file), parse)
            table = definition.output(namespace)
            _refuse_place(definition, config)
            reads(definition)
        except PipelineError as error:
            broken[name] = Broken(_shown(file), table, error)
        else:
            found[name] = definition
    refused = dict(_of_changelogs(found.values(), namespace))
    ordered = in_order([d for name, d in found.items() if name not in refused], namespace)
    for name, reason in {**refused, **ordered.refused}.items():
        broken[name] = Broken(found[name].file, found[name].output(namespace), reason)
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


def _of_changelogs(
    definitions: Collection[Definition], namespace: str
) -> Iterator[tuple[str, PipelineError]]:
    """Yield the pipelines that read the changelog of a result, which is read as the result itself."""
    results = [definition.output(namespace) for definition in definitions]
    changelogs = {result.changes: result for result in results}
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
    table = definition.output(config.lake.pipelines_namespace)
    if table.namespace in (*config.lake.namespaces, config.lake.history_namespace):
        raise definition.header_error(
            "table",
            f"{table.namespace} is a namespace of the mirror itself",
            f"name another one: {definition.setting(f'table: {config.lake.pipelines_namespace}.{table.name}')}",
        )


def _shown(file: Path) -> str:
    """Return a path as the operator would write it."""
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


def chosen(files: PipelineFiles, names: Collection[str], config: Config) -> list[Definition]:
    """Return the named pipelines, in their order; all without a name. Histories have names too.

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
    return [definition for definition in files.definitions if not names or definition.name in names]


def with_inputs(
    definitions: Sequence[Definition], wanted: Collection[Definition], config: Config
) -> list[Definition]:
    """Return pipelines and those whose results they read, in their order."""
    names = {definition.name for definition in wanted}
    for definition in reversed(definitions):
        if definition.name in names:
            names |= {other.name for other in read_by(definition, definitions, config)}
    return [definition for definition in definitions if definition.name in names]


def read_by(definition: Definition, definitions: Sequence[Definition], config: Config) -> list[Definition]:
    """Return the pipelines whose results a pipeline reads."""
    wanted, namespace = reads(definition), config.lake.pipelines_namespace
    return [d for d in definitions if any(name.names(d.output(namespace)) for name in wanted)]


def _no_such(name: str, known: Collection[str], config: Config) -> UsageError:
    folder = config.pipelines.folder
    if not known:
        return UsageError(
            f"there is no pipeline {name}: {folder} has no files NAME.sql or NAME.py",
            f"write a SELECT to {folder / name}.sql",
        )
    return UsageError(f"there is no pipeline {name}", f"pipelines: {', '.join(sorted(known))}")
