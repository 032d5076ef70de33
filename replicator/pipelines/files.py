"""The files of pipelines beside the configuration. Without Spark."""

from collections.abc import Collection, Sequence
from pathlib import Path

from replicator.config import Config
from replicator.errors import UsageError
from replicator.pipelines.query.definition import Definition, read_definition
from replicator.pipelines.query.graph import in_order, reads


def definitions_in(config: Config) -> Sequence[Definition]:
    """Return the pipelines of a configuration, each after those that it reads; none if there is no folder.

    Raises:
        PipelineError: a file cannot be used, or pipelines read each other in a circle.
    """
    folder = config.pipelines.folder
    files = sorted(folder.glob("*.sql")) if folder.is_dir() else []
    return in_order([read_definition(file, _shown(file)) for file in files], config.lake.pipelines_namespace)


def _shown(file: Path) -> str:
    """Return a path as the operator would write it."""
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


def chosen(definitions: Sequence[Definition], names: Collection[str], config: Config) -> list[Definition]:
    """Return the named pipelines, in their order; all without a name.

    Raises:
        UsageError: there is no pipeline of a name.
    """
    known = [definition.name for definition in definitions]
    if unknown := [name for name in names if name not in known]:
        raise _no_such(unknown[0], known, config)
    return [definition for definition in definitions if not names or definition.name in names]


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
            f"there is no pipeline {name}: {folder} has no files NAME.sql",
            f"write a SELECT to {folder / name}.sql",
        )
    return UsageError(f"there is no pipeline {name}", f"pipelines: {', '.join(sorted(known))}")
