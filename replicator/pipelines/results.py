"""Which tables pipelines write. The parser of SQL is loaded only if there are pipelines: `status` answers at once."""

# ruff: noqa: PLC0415

from collections.abc import Callable

from replicator.config import Config


def has_pipelines(config: Config) -> bool:
    """Return whether there is a file of a pipeline, or a table with a history."""
    return any(table.history for table in config.tables) or bool(config.pipelines.files())


def result_tables(config: Config, *, changelogs: bool = True) -> list[tuple[str, str]]:
    """Return namespace and name of the results of all pipelines and of their changelogs, existing or not."""
    if not has_pipelines(config):
        return []
    from replicator.pipelines.files import read_pipelines

    results = read_pipelines(config).results
    of_each = [(result, result.changes) if changelogs else (result,) for result in results]
    return [(name.namespace, name.name) for names in of_each for name in names]


def results_over(config: Config) -> Callable[[str], tuple[str, ...]]:
    """Return what tells the results that are computed of a mirror or its changes, directly or over other results."""
    if not has_pipelines(config):
        return lambda _: ()
    from replicator.pipelines.files import inputs_of, read_pipelines
    from replicator.pipelines.query.names import TableName

    computed: dict[TableName, set[TableName]] = {}
    for pipeline in read_pipelines(config).pipelines:
        wanted = set(inputs_of(pipeline))
        for result, of in list(computed.items()):
            if any(name.names(result) for name in wanted):
                wanted |= of
        computed[pipeline.table] = wanted

    def over(mirror: str) -> tuple[str, ...]:
        table = TableName(config.lake.namespace, mirror)
        found = (r for r, of in computed.items() if any(n.names(table) or n.names(table.changes) for n in of))
        return tuple(sorted(map(str, found)))

    return over
