"""The staging table of a re-read: an ordinary mirror of the source table in another namespace, without a changelog.

So the code that applies changes to mirrors applies them to it too.
"""

from dataclasses import dataclass, field, replace

from replicator.batch import MirrorContext, TableTask
from replicator.batch.evolution.keeper import TableKeeper
from replicator.batch.state.tagging import Tagging
from replicator.batch.steps.decode import current_schema
from replicator.batch.task import Segment
from replicator.batch.values import BatchSchema
from replicator.config import Config, SchemaChangesConfig
from replicator.errors import LakeUnavailable
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.commit import Staged
from replicator.lake.ledger import Ledger
from replicator.model.commit_marker import CommitMarker
from replicator.model.reread import STATE_KEY, Request, StagingState
from replicator.model.roles import LakeRole
from replicator.model.table import TableId
from replicator.recovery.reader.commit_fence import CommitFences


def staging_namespace(config: Config) -> str:
    """Return the namespace of the staging tables."""
    return f"{config.lake.namespace}_rereads"


def staging_config(config: Config) -> Config:
    """Return the configuration under which staging tables are mirrors: another namespace, and no changelogs.

    Bad events are quarantined, in the quarantine of the mirror; the table is then read again: see `TableReread`. So it
    is after statements that change rows without events, whatever the policy is.
    """
    table = {"changelog": False, "on_bad_event": "quarantine"}
    return config.model_copy(
        update={
            "lake": config.lake.model_copy(update={"namespace": staging_namespace(config)}),
            "apply": config.apply.model_copy(update=table),
            "schema_changes": _without_kept_rows(config.schema_changes),
            "tables": tuple(
                section.model_copy(
                    update={**table, "schema_changes": _without_kept_rows(section.schema_changes)}
                )
                for section in config.tables
            ),
        }
    )


def _without_kept_rows(policies: SchemaChangesConfig) -> SchemaChangesConfig:
    return policies.model_copy(update={"unlogged": "reread"})


@dataclass(frozen=True, slots=True)
class Staging:
    """The staging tables of a mirror.

    Attributes:
        context: a context in which staging tables are the mirrors.
        fences: what the readers of the tables share.
    """

    context: MirrorContext
    fences: CommitFences = field(default_factory=CommitFences)

    @classmethod
    def of(cls, context: MirrorContext) -> "Staging":
        """Return the staging tables of the mirror with this context; create their namespace.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        config = staging_config(context.config)
        context.lake.ensure_namespace(config.lake.namespace)
        ledger = Ledger(context.lake, config)
        own = replace(
            context,
            config=config,
            ledger=ledger,
            tagging=Tagging(),
            created_for=context.config.lake.namespace,
        )
        return cls(own)

    @property
    def namespace(self) -> str:
        """The namespace of the staging tables."""
        return self.context.config.lake.namespace

    def load(self, table: TableId) -> LakeTable | None:
        """Return the staging table of a source table; None if there is none."""
        return self.context.lake.load(self.namespace, table.name)

    def existing(self, table: TableId) -> LakeTable:
        """Return the staging table of a source table.

        Raises:
            LakeUnavailable: it was dropped meanwhile, or the catalog does not answer.
        """
        staging = self.load(table)
        if staging is None:
            raise LakeUnavailable(f"the staging table of {table} does not exist any more")
        return staging

    def state(self, staging: LakeTable | None, request: Request) -> StagingState | None:
        """Return the state of a staging table; None if it belongs to another request, or contains nothing yet."""
        text = None if staging is None else staging.property(STATE_KEY)
        state = None if text is None else StagingState.from_json(text)
        return state if state is not None and state.request == request.id else None

    def schema(self, task: TableTask) -> BatchSchema:
        """Return the newest known schema of the task's table."""
        versions = self.context.schemas.history(task.table).versions
        newest = replace(task, target_schema_at=versions[-1].at if versions else None)
        return current_schema(Segment.begin(self.context, newest))

    def create(self, table: TableId, schema: BatchSchema) -> LakeTable:
        """Create the staging table of a source table; an earlier one is dropped.

        Raises:
            LakeUnavailable: the catalog failed.
        """
        self.drop(table)
        options = self.context.config.table(str(table))
        created = TableKeeper(self.context, table, options, schema).keep(LakeRole.MIRROR)
        if created is None:
            raise LakeUnavailable(f"the staging table of {table} was not created")
        return created

    def drop(self, table: TableId) -> None:
        """Drop the staging table of a source table, if there is one."""
        staging = self.load(table)
        if staging is not None:
            self.context.row_locations.forget(staging)
            self.context.lake.drop(self.namespace, table.name)
        self.context.ledger.forget(table)

    def commit(self, table: TableId, staged: Staged, marker: CommitMarker, state: StagingState) -> None:
        """Commit rows and state to the staging table.

        Raises:
            LakeError: as `TableWriter.commit`; nothing was committed.
        """
        staging = self.existing(table)
        target = self.context.writer.target(table, LakeRole.MIRROR, staging)
        whole = replace(staged, properties={STATE_KEY: state.to_json()})
        self.context.writer.commit(target, whole, marker)
