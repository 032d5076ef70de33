"""Restatements: the newest commit of a changelog whose rows do not follow by offset, and whether the mirror has it."""

import pytest

from replicator.model.changelog import Restatement, followed_by_mirror, next_restatement, restated


def test_interrupted_restatement_continues_with_a_later_commit() -> None:
    first = next_restatement(None, None, "replay-0:3-4", 7)
    again = next_restatement(first, None, "replay-0:3-4", 8)
    assert restated(again) == Restatement("replay-0:3-4", 8, None, 0, 1)
    assert followed_by_mirror(again, None) == again


def test_mirror_that_lacks_an_earlier_one_does_not_follow() -> None:
    first = next_restatement(None, None, "reread-1", 7)
    second = next_restatement(first, None, "replay-0:3-4", 9)
    assert followed_by_mirror(second, None) is None


def test_recreated_topics_are_counted() -> None:
    first = next_restatement(None, None, "topic", 7, recreates_topic=True)
    second = next_restatement(first, first, "reread-2", 8)
    third = restated(next_restatement(second, second, "topic", 9, recreates_topic=True))
    assert third is not None
    assert third.topics == 2
    again = restated(next_restatement(third.to_json(), second, "topic", 10, recreates_topic=True))
    assert again is not None
    assert again.topics == 2


def test_table_without_a_changelog_keeps_what_it_has() -> None:
    text = Restatement("reread-1", 7).to_json()
    assert followed_by_mirror(None, text) == text
    assert restated(None) is None


def test_newer_version_is_refused() -> None:
    with pytest.raises(ValueError, match="has version 2"):
        Restatement.from_json('{"version": 2}')
