"""Check the files of pipelines against the tables of the lake, without running code and without Spark."""

from collections.abc import Iterator

from replicator.config import Config
from replicator.model.common import counted
from replicator.operations.check.result import CheckResult, ok, warn
from replicator.pipelines.results import has_pipelines


def check_pipelines(config: Config) -> Iterator[CheckResult]:
    """Yield a result for each pipeline that cannot be used, or one if all can be.

    Raises:
        LakeUnavailable: the catalog cannot be read.
    """
    if not has_pipelines(config):
        return
    # It loads a parser of SQL.
    from replicator.pipelines.status import INVALID, list_pipelines  # noqa: PLC0415

    found = list_pipelines(config)
    broken = [status for status in found if status.state == INVALID]
    for status in broken:
        yield warn(f"pipelines: {status.name}", status.problem or "", status.hint or f"edit {status.file}")
    if not broken:
        yield ok("pipelines: files", counted(len(found), "pipeline"))
