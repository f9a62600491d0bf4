"""The judge of power cuts lets pass what may be, and nothing else."""

import pytest

from power.bucket import judge_lost
from support.judge import Wrong, judge

FILES, OTHER = {"w": "sha 1 644 7"}, {"w": "sha 2 644 8"}


def act(begin, end, steps=None, plain=None, durable=True, new=()):
    return {"what": "", "begin": begin, "end": end, "steps": steps or {}, "plain": plain or {}, "durable": durable, "new": list(new)}


def passes(acts, position, steps=None, plain=None, trash=()):
    try:
        judge(acts, position, {"steps": steps or {}, "plain": plain or {}, "trash": list(trash)})
    except Wrong:
        return False
    return True


def test_what_was_acknowledged_must_be_there():
    acts = [act(10, 20, {"1": FILES})]
    assert passes(acts, 20, {"1": FILES}) and passes(acts, 99, {"1": FILES})
    assert not passes(acts, 20)
    assert not passes(acts, 20, {"1": OTHER})
    assert not passes(acts, 20, {"1": FILES | {"more": "x"}}) and not passes(acts, 20, {"1": {}})
    assert not passes(acts, 20, {"1": FILES, "2": FILES})


def test_what_was_under_way_is_there_or_not():
    acts = [act(10, 20, {"1": FILES}), act(30, 40, {"1": OTHER})]
    assert passes(acts, 15) and passes(acts, 15, {"1": FILES})
    assert not passes(acts, 15, {"1": OTHER})
    assert passes(acts, 35, {"1": FILES}) and passes(acts, 35, {"1": OTHER}) and not passes(acts, 35)


def test_what_had_not_begun_is_not_there():
    acts = [act(10, 20, {"1": FILES})]
    assert passes(acts, 10) and not passes(acts, 10, {"1": FILES})


def test_move_has_one_name_or_the_other():
    acts = [act(0, 5, {"1": FILES}), act(10, 20, {"1": None, "2": FILES})]
    assert passes(acts, 15, {"1": FILES}) and passes(acts, 15, {"2": FILES})
    assert not passes(acts, 15) and not passes(acts, 15, {"1": FILES, "2": FILES})


def test_acts_of_two_clients_are_there_or_not_by_themselves():
    acts = [act(10, 20, {"1": FILES}), act(12, 30, {"2": FILES})]
    for steps in ({}, {"1": FILES}, {"2": FILES}, {"1": FILES, "2": FILES}):
        assert passes(acts, 15, steps)
        assert passes(acts, 25, steps) == ("1" in steps)


def test_deleted_step_is_in_the_trash_for_sure():
    acts = [act(0, 5, {"1": FILES}), act(10, 20, {"1": None})]
    assert passes(acts, 20, trash=["1"]) and not passes(acts, 20)
    assert not passes(acts, 20, {"1": FILES}, trash=["1"])
    assert passes(acts, 15, {"1": FILES}) and passes(acts, 15)


def test_plain_files_hold_one_of_what_was_written_since_they_were_durable():
    acts = [act(0, 5, plain={"t": "a"}, new=["t"]), act(10, 12, plain={"t": "b"}, durable=False), act(20, 22, plain={"t": "c"}, durable=False)]
    assert passes(acts, 3) and passes(acts, 3, plain={"t": "anything"})
    assert passes(acts, 5, plain={"t": "a"}) and not passes(acts, 5, plain={"t": "b"}) and not passes(acts, 5)
    for text in "abc":
        assert passes(acts, 30, plain={"t": text})
    assert not passes(acts, 30, plain={"t": "half"}) and not passes(acts, 30)
    acts.append(act(40, 42, plain={"t": "d"}))
    assert passes(acts, 41, plain={"t": "a"}) and passes(acts, 42, plain={"t": "d"}) and not passes(acts, 42, plain={"t": "a"})


def test_bucket_alone_has_what_was_waited_for():
    acts, waits = [act(10, 20, {"1": FILES}), act(30, 40, {"2": OTHER})], [[25, 28], [45, 60]]

    def passes_lost(position, steps):
        try:
            judge_lost(acts, position, waits, {"steps": steps, "plain": {}, "trash": None})
        except Wrong:
            return False
        return True
    assert passes_lost(27, {}) and passes_lost(27, {"1": FILES}) and not passes_lost(27, {"1": OTHER})
    assert passes_lost(28, {"1": FILES}) and not passes_lost(28, {})
    assert passes_lost(50, {"1": FILES}) and passes_lost(50, {"1": FILES, "2": OTHER}) and not passes_lost(50, {"2": OTHER})
    assert not passes_lost(60, {"1": FILES}) and passes_lost(60, {"1": FILES, "2": OTHER})


def test_store_that_cannot_be_opened_is_wrong():
    with pytest.raises(Wrong):
        judge([], 0, {"error": "no"})
