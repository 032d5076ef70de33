"""Read a mirror's status from the lake: without Java, Spark or a running mirror process."""

import re
from concurrent.futures import ThreadPoolExecutor

from replicator.config import Config
from replicator.lake.reader import newest_marker
from replicator.operations.status.judge import Judge, sources_of
from replicator.operations.status.lake_state import LakeState, read_lake
from replicator.operations.status.mirror_status import ConnectorStatus, MirrorStatus
from replicator.sources.source_view import SourceView, read_source
from replicator.sources.topic_patterns import topic_pattern


def read_status(config: Config) -> MirrorStatus:
    """Read the lake, and the log, the connector and the source as far as they can be reached.

    Raises LakeUnavailable.
    """
    with ThreadPoolExecutor(1) as pool:
        view = pool.submit(read_source, config)
        # Whatever the lake has now it still has later, so it may be read before the log.
        lake = read_lake(config)
        return _assemble(config, lake, view.result())


def _assemble(config: Config, lake: LakeState, view: SourceView) -> MirrorStatus:
    markers = {
        name: found for name, table in lake.mirrors.items() if (found := newest_marker(table)) is not None
    }
    started = {topic for marker in markers.values() for topic in marker.progress}
    pattern = topic_pattern(view.prefix.removesuffix("."), config.source.tables, config.source.exclude)
    waiting = sorted(
        {topic for (topic, _), end in (view.ends or {}).items() if end > 0 and topic not in started}
    )
    watermarks = [m.watermark_ms for m in markers.values() if m.watermark_ms is not None]
    judge = Judge(config, lake, view, watermarks)
    sources = {
        source
        for name, marker in markers.items()
        for source in sources_of(lake.mirrors[name], marker, view.prefix)
    }
    return MirrorStatus(
        mirror=config.mirror.name,
        namespace=config.lake.namespace,
        tables=tuple(judge.table(name, marker) for name, marker in markers.items()),
        not_started=tuple(
            source
            for topic in waiting
            if re.fullmatch(pattern, topic)
            if not config.source.excludes(source := topic.removeprefix(view.prefix))
        ),
        paused={source: trouble.reason for source, trouble in lake.paused.items()},
        quarantined=lake.quarantined.total(),
        log_problem=view.log_problem,
        source_problem=view.source_problem,
        connector=_connector(view),
        empty=tuple(table for table in view.empty if table not in sources),
        unread=tuple(table for table in view.unread if table not in sources),
        retrying={source: trouble.reason for source, trouble in lake.retrying.items()},
        maintenance=lake.maintenance,
        rereads=lake.rereads,
        rewinds=lake.rewinds,
        tags=lake.tags,
        verified=lake.verified,
        checks=lake.checks,
    )


def _connector(view: SourceView) -> ConnectorStatus | None:
    seen = view.connector
    if seen is None:
        return None
    behind = view.offset.transactions_behind(view.end) if view.offset and view.end else None
    return ConnectorStatus(
        name=seen.name,
        state=seen.state,
        reason=seen.reason,
        next_step=seen.next_step(),
        position=None if view.offset is None else str(view.offset),
        source_position=None if view.end is None else str(view.end),
        transactions_behind=behind,
    )
