"""Which tables pipelines write. The parser of SQL is loaded only if there are pipelines: `status` answers at once."""

# ruff: noqa: PLC0415

from replicator.config import Config


def has_pipelines(config: Config) -> bool:
    """Return whether there is a file of a pipeline."""
    return any(config.pipelines.folder.glob("*.sql"))


def result_tables(config: Config) -> list[tuple[str, str]]:
    """Return namespace and name of the results of all pipelines and of their changelogs, existing or not."""
    if not has_pipelines(config):
        return []
    from replicator.pipelines.files import read_pipelines

    results = read_pipelines(config).results(config.lake.pipelines_namespace)
    return [(name.namespace, name.name) for result in results for name in (result, result.changes)]
