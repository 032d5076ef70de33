"""Load the function of a pipeline, and call it. Its code runs in this process, and may do what this process may."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from replicator.errors import PipelineError, ReplicatorError
from replicator.pipelines.query.definition import Definition
from replicator.pipelines.query.header import check_header
from replicator.pipelines.query.plan import reserved
from replicator.pipelines.query.python import MODEL
from replicator.pipelines.refresh.refused import refusal


@dataclass(frozen=True, slots=True)
class Function:
    """The function of a pipeline.

    Attributes:
        call: what the file defines.
        columns: the columns that the result must have; empty if they are not known.
    """

    definition: Definition
    call: Callable[..., object]
    columns: tuple[str, ...] = ()

    @classmethod
    def load(cls, definition: Definition) -> "Function":
        """Run the code of the file, and return its function.

        Raises:
            PipelineError: the code fails.
        """
        module = ModuleType(f"replicator_pipelines.{definition.name}")
        module.__file__ = definition.file
        # Dataclasses look for their module. Spark's workers cannot import it, so they get its functions by value.
        sys.modules[module.__name__] = module
        cloudpickle.register_pickle_by_value(module)
        with _refusing(definition):
            exec(compile(definition.text, definition.file, "exec"), module.__dict__)  # noqa: S102 the operator's code
        return cls(definition, getattr(module, MODEL))

    def __call__(self, *inputs: DataFrame) -> DataFrame:
        """Call the function with the rows of its inputs, in the order of the header.

        Raises:
            PipelineError: it fails, or does not return what can be a result.
        """
        with _refusing(self.definition):
            found = self.call(**dict(zip(self.definition.inputs, inputs, strict=True)))
        if not isinstance(found, DataFrame):
            raise self._error(
                f"{MODEL}() must return a DataFrame of Spark, not {type(found).__name__}",
                "of pandas, make one with createDataFrame: of the session of an input, orders.sparkSession",
            )
        self._check(found)
        return found

    def _check(self, rows: DataFrame) -> None:
        names = [name.lower() for name in rows.columns]
        if twice := [name for n, name in enumerate(names) if name in names[:n]]:
            raise self._error(f"the result has two columns {twice[0]}", "rename one of them, or leave it out")
        if (reason := reserved(rows.columns, changelog=self.definition.changelog)) is not None:
            raise self._error(reason, "name the column otherwise")
        check_header(self.definition, rows.columns)
        if self.columns and names != [name.lower() for name in self.columns]:
            reason = f"the columns are {', '.join(rows.columns)}, and were {', '.join(self.columns)}"
            raise self._error(reason, f"{MODEL}() must give the same columns for any rows")
        plan: Any = rows._jdf.queryExecution().analyzed()  # noqa: SLF001 no public way
        if not plan.deterministic():
            reason = "its result would be another one at each refresh, as that of rand() or uuid()"
            raise self._error(reason, "derive the values from columns, as hash(id) does")

    def _error(self, reason: str, hint: str) -> PipelineError:
        return self.definition.header_error(MODEL, reason, hint)


@contextmanager
def _refusing(definition: Definition) -> Iterator[None]:
    """Raise what code of the file raises as an error with its place; errors of the lake stay as they are."""
    try:
        yield
    except ReplicatorError:
        raise
    except (Exception, SystemExit) as error:
        if (refused := refusal(definition, error)) is not None:
            raise refused from error
        raise
