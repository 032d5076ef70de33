"""What the metadata of a table says about its last maintenance."""

from replicator.maintenance.history import STEP_KEY, StepRun, merged_files, runs_to_json, step_runs
from replicator.maintenance.plan import MergedFiles, Step


def summary(step: str | None, data: int = 0, deletes: int = 0) -> dict[str, str]:
    found = {"total-data-files": str(data), "total-delete-files": str(deletes)}
    return found if step is None else found | {STEP_KEY: step}


def test_step_runs_are_the_newest_of_each_step() -> None:
    snapshots = [
        (1, summary("merge data files", 9)),
        (2, summary(None, 10)),
        (3, summary("merge data files", 2, 5)),
        (4, summary("merge delete files", 2, 1)),
    ]
    assert step_runs(snapshots, None) == {
        Step.MERGE_DATA: StepRun(3, 2, 5),
        Step.MERGE_DELETES: StepRun(4, 2, 1),
    }


def test_step_runs_of_deleted_snapshots_are_in_the_property() -> None:
    text = runs_to_json({Step.EXPIRE: StepRun(5, 3, 0), Step.MERGE_DATA: StepRun(4, 3, 0)})
    assert text == (
        '{"version":1,"steps":{"delete snapshots":{"ms":5,"data_files":3,"delete_files":0},'
        '"merge data files":{"ms":4,"data_files":3,"delete_files":0}}}'
    )
    runs = step_runs([(9, summary("merge data files", 1))], text)
    assert runs == {Step.EXPIRE: StepRun(5, 3, 0), Step.MERGE_DATA: StepRun(9, 1, 0)}
    assert step_runs([(3, summary("merge data files", 1))], text)[Step.MERGE_DATA].ms == 4


def test_step_runs_ignore_what_another_version_wrote() -> None:
    assert step_runs([(1, summary("polish files"))], '{"version":2,"steps":[]}') == {}
    text = '{"version":1,"steps":{"polish files":{"ms":5,"data_files":3,"delete_files":0}}}'
    assert step_runs([], text) == {}


def test_merged_files_are_those_of_the_newest_step_that_wrote_such_files() -> None:
    assert merged_files({}) == MergedFiles(0, 0)
    runs = {
        Step.MERGE_DATA: StepRun(3, 7, 5),
        Step.MERGE_DELETES: StepRun(4, 8, 2),
        Step.EXPIRE: StepRun(6, 9, 9),
    }
    assert merged_files(runs) == MergedFiles(7, 2)
    assert merged_files(runs | {Step.FOLD_DELETES: StepRun(5, 1, 0)}) == MergedFiles(1, 0)


def test_merged_files_are_not_those_that_a_later_step_dropped() -> None:
    runs = {Step.MERGE_DELETES: StepRun(3, 50, 40), Step.MERGE_DATA: StepRun(5, 7, 1)}
    assert merged_files(runs) == MergedFiles(7, 1)
    assert merged_files(runs | {Step.EXPIRE: StepRun(6, 9, 3)}) == MergedFiles(7, 1)
    assert merged_files({Step.MERGE_DATA: StepRun(5, 7, 1)}) == MergedFiles(7, 0)
