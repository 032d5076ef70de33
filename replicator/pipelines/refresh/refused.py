"""Tell the errors of a pipeline's file from those of the lake: what Spark or a function says, and where."""

import re
import traceback
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import UnknownException

from replicator.errors import PipelineError, PipelineUnfit
from replicator.jvm.spark import first_line
from replicator.pipelines.query.definition import Definition

_SQL_ERROR: Final = re.compile(r"(?P<text>\[[A-Z0-9_.]+\].*?) ?SQLSTATE: (?P<state>22|42)", re.DOTALL)
"""An error of a SELECT that Spark cannot resolve (42), or of a value that it meets (22), such as a division by zero."""
_LONGEST_REASON: Final = 400


def refusal(definition: Definition, error: BaseException) -> PipelineError | None:
    """Return the error of a file that Spark cannot resolve or compute; None if it failed for another reason."""
    place = _place(definition, error)
    hint = f"correct {'the function' if place else 'the SELECT'}, then: replicator pipeline run {definition.name}"
    if (found := _SQL_ERROR.search(str(error))) is not None:
        said = " ".join(found["text"].split())[:_LONGEST_REASON]
        # The inputs may get what it lacks at any time. A value would be met again, after all the work.
        kind = PipelineUnfit if found["state"] == "42" else PipelineError
        return kind(f"{place or definition.file}: Spark refuses it: {said}", hint)
    if (raised := _of_worker(definition, str(error))) is not None:
        return PipelineError(raised, hint)
    if place is None or isinstance(error, (UnknownException, Py4JError)):
        # Code that reads rows at once meets what fails in the lake, too.
        return None
    return PipelineError(f"{place}: {first_line(error)}"[:_LONGEST_REASON], hint)


def _place(definition: Definition, error: BaseException) -> str | None:
    """Return the last line of the file that was running; None if none was."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == definition.file and frame.lineno]
    return f"{definition.file}:{lines[-1]}" if lines else None


def _of_worker(definition: Definition, text: str) -> str | None:
    """Return what a function of the file raised in a Python worker, with its place; None if none did."""
    places = list(re.finditer(rf'File "{re.escape(definition.file)}", line (\d+)', text))
    if not places:
        return None
    later = text[places[-1].end() :].splitlines()[1:]
    said = next((line for line in later if line and not line[0].isspace()), "it failed")
    return f"{definition.file}:{places[-1][1]}: {said}"[:_LONGEST_REASON]
