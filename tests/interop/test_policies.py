"""Policies beside Orbax's own: the same runs, played by `ckptfs policy explain` and by the policies of the package, one after the other.

What Orbax leaves to its manager is done here: the steps that were saved before, one save at a time, and what is removed after each."""

import dataclasses
import datetime
import itertools
import json
import os
import random
import types

import pytest

os.environ["JAX_PLATFORMS"] = "cpu"

import orbax.checkpoint as ocp  # noqa: E402
from orbax.checkpoint._src.checkpoint_managers import preservation_policy as keeping  # noqa: E402
from orbax.checkpoint._src.checkpoint_managers import save_decision_policy as saving  # noqa: E402
from orbax.checkpoint.options import MultiprocessingOptions  # noqa: E402

pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


@dataclasses.dataclass
class Info:
    step: int
    time: datetime.datetime
    metrics: dict | None = None


@dataclasses.dataclass
class Run:
    first: int
    last: int
    step_secs: int = 1
    save_secs: int = 0
    preempt_at: int | None = None


@pytest.fixture
def clock(monkeypatch):
    """LatestDuration reads the time: clock.now is what it finds."""
    c = types.SimpleNamespace(now=START)

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return c.now

    monkeypatch.setattr(keeping, "datetime", types.SimpleNamespace(datetime=Clock, timedelta=datetime.timedelta, timezone=datetime.timezone))
    return c


def play(clock, run, save, keep):
    """What Orbax's policies make of a run: the steps that are saved, and those that are there at the end."""
    now, there, under_way, saved = START, [], None, []

    def end():
        nonlocal under_way, there
        info, under_way = Info(under_way[0], under_way[1]), None
        there.append(info)
        clock.now = max(now, info.time)
        kept = keep.should_preserve(there, context=keeping.PreservationContext())
        there = [one for one, stays in zip(there, kept) if stays or one is info]

    for step in range(run.first, run.last + 1):
        if under_way and under_way[1] <= now:
            end()
        context = saving.DecisionContext(is_saving_in_progress=under_way is not None, multiprocessing_options=MultiprocessingOptions(),
                                         reached_preemption=run.preempt_at is not None and step >= run.preempt_at)
        if save.should_save(Info(step, now), previous_steps=there, context=context):
            if under_way:
                now = under_way[1]
                end()
            saved.append(step)
            under_way = step, now + datetime.timedelta(seconds=run.save_secs)
            if not run.save_secs:
                end()
        now += datetime.timedelta(seconds=run.step_secs)
    if under_way:
        end()
    return saved, [info.step for info in there]


def explain(ckptfs, store, run, policy):
    """The same of ours."""
    words = ["--step-time", f"{run.step_secs}s", "--save-time", f"{run.save_secs}s"]
    if run.preempt_at is not None:
        words += ["--preempt-at", run.preempt_at]
    rows = ckptfs.json("policy", "explain", store, f"{run.first}..{run.last}", "-", *words, input=json.dumps(policy))
    assert [row["step"] for row in rows] == list(range(run.first, run.last + 1))
    return [row["step"] for row in rows if row["save"]], [row["step"] for row in rows if row["keep"]]


@pytest.fixture
def compare(ckptfs, store, clock):
    ckptfs("init", store)

    def check(run, policy, save, keep):
        theirs = play(clock, run, save, keep)
        ours = explain(ckptfs, store, run, policy)
        assert ours == theirs, (run, policy)
        return theirs
    return check


def secs(n):
    return datetime.timedelta(seconds=n)


SAVES = [
    ({"fixed_interval": {"interval": 7}}, saving.FixedIntervalPolicy(7)),
    ({"fixed_interval": {"interval": 1}}, saving.FixedIntervalPolicy(1)),
    ({"specific_steps": {"steps": [0, 3, 77, 78]}}, saving.SpecificStepsPolicy([0, 3, 77, 78])),
    ({"specific_steps": {"steps": [[20, 29]]}}, saving.SpecificStepsPolicy(range(20, 30))),
    ({"continuous": {}}, saving.ContinuousCheckpointingPolicy()),
    ({"continuous": {"minimum_interval_secs": 10}}, saving.ContinuousCheckpointingPolicy(minimum_interval_secs=10)),
    ({"continuous": {"minimum_interval_secs": 0}}, saving.ContinuousCheckpointingPolicy(minimum_interval_secs=0)),
    ({"initial": {}}, saving.InitialSavePolicy()),
    ({"preemption": {}}, saving.PreemptionCheckpointingPolicy()),
]

KEEPS = [
    ({"preserve_all": {}}, keeping.PreserveAll()),
    ({"latest_n": {}}, keeping.LatestN()),
    ({"latest_n": {"n": 3}}, keeping.LatestN(3)),
    ({"latest_n": {"n": 0}}, keeping.LatestN(0)),
    ({"every_n_seconds": {"interval_secs": 20}}, keeping.EveryNSeconds(20)),
    ({"every_n_steps": {"interval_steps": 8}}, keeping.EveryNSteps(8)),
    ({"every_n_steps": {"interval_steps": 8, "max_to_keep": 2}}, keeping.EveryNSteps(8, max_to_keep=2)),
    ({"every_n_steps": {"interval_steps": 8, "exact_interval": False}}, keeping.EveryNSteps(8, exact_interval=False)),
    ({"every_n_steps": {"interval_steps": 9, "exact_interval": False, "max_to_keep": 3}}, keeping.EveryNSteps(9, False, 3)),
    ({"every_n_steps_closest": {"interval_steps": 10}}, keeping.EveryNStepsClosest(10)),
    ({"every_n_steps_closest": {"interval_steps": 7, "max_to_keep": 4}}, keeping.EveryNStepsClosest(7, 4)),
    ({"custom_steps": {"steps": [7, 49, 50]}}, keeping.CustomSteps([7, 49, 50])),
    ({"latest_duration": {"secs": 25}}, keeping.LatestDuration(secs(25))),
]

RUNS = [Run(0, 120), Run(33, 90, step_secs=4), Run(0, 120, save_secs=5, preempt_at=61), Run(1, 100, step_secs=2, save_secs=7)]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_each_policy_saves_what_orbax_saves(compare, run):
    for ours, theirs in SAVES:
        compare(run, {"save": ours, "keep": {"preserve_all": {}}}, theirs, keeping.PreserveAll())


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_each_policy_keeps_what_orbax_keeps(compare, run):
    for (ours, theirs), interval in itertools.product(KEEPS, (1, 7)):
        compare(run, {"save": {"fixed_interval": {"interval": interval}}, "keep": ours}, saving.FixedIntervalPolicy(interval), theirs)


def test_trees_of_policies_do_what_orbax_does(compare):
    dice = random.Random(7)
    for _ in range(60):
        saves, keeps = dice.sample(SAVES, dice.randint(1, 4)), dice.sample(KEEPS, dice.randint(1, 4))
        run = Run(dice.randint(0, 40), dice.randint(80, 160), dice.randint(1, 5), dice.choice([0, 0, 3, 11]), dice.choice([None, 70]))
        compare(run, {"save": {"any": [ours for ours, _ in saves]}, "keep": {"any": [ours for ours, _ in keeps]}},
                saving.AnySavePolicy([theirs for _, theirs in saves]), keeping.AnyPreservationPolicy([theirs for _, theirs in keeps]))


@pytest.mark.parametrize("run", [Run(0, 2000), Run(1, 2000, save_secs=4), Run(3, 2000, save_secs=30, preempt_at=1990)], ids=str)
def test_presets_are_orbaxs_defaults(compare, run):
    v1 = saving.AnySavePolicy([saving.InitialSavePolicy(), saving.ContinuousCheckpointingPolicy(), saving.PreemptionCheckpointingPolicy()])
    assert len(compare(run, {"preset": "orbax-v1"}, v1, keeping.PreserveAll())[0]) > 60
    options = ocp.CheckpointManagerOptions()
    v0 = ocp.checkpoint_manager._get_default_save_decision_policy(options), ocp.checkpoint_manager._get_default_preservation_policy(options)
    assert len(compare(run, {"preset": "orbax-v0"}, *v0)[0]) == run.last - run.first + 1
    options = ocp.CheckpointManagerOptions(save_interval_steps=10000)  # as MaxText makes them
    maxtext = ocp.checkpoint_manager._get_default_save_decision_policy(options), ocp.checkpoint_manager._get_default_preservation_policy(options)
    compare(run, {"preset": "maxtext"}, *maxtext)


# --- By metrics, in a store ----------------------------------------------------------------------------------------------

LOSSES = {1: 0.5, 3: 0.9, 4: None, 8: 0.1, 9: 0.9, 12: 0.1, 20: None, 21: 0.3, 30: 0.3, 31: 7}

BESTS = [dict(n=n, reverse=reverse, keep_checkpoints_without_metrics=unmeasured)
         for n in (None, 0, 1, 2, 4, 9, 10) for reverse in (False, True) for unmeasured in (False, True)]


def test_best_n_keeps_what_orbax_keeps(ckptfs, store, scratch):
    folder, metadata = scratch / "folder", scratch / "metadata"
    folder.mkdir()
    (folder / "model").write_text("weights")
    ckptfs("init", store)
    for step, loss in LOSSES.items():
        metadata.write_text(json.dumps({} if loss is None else {"metrics": {"loss": loss}}))
        ckptfs("save", store, folder, step, "--metadata", metadata)
    infos = [Info(step, START + secs(step), None if loss is None else {"loss": loss}) for step, loss in LOSSES.items()]
    for best in BESTS:
        ckptfs("policy", "set", store, "-", input=json.dumps({"keep": {"best_n": {"metric": "loss", **best}}}))
        rows = ckptfs.json("retain", "--dry-run", store)
        theirs = keeping.BestN(get_metric_fn=lambda metrics: metrics["loss"], **best).should_preserve(infos, context=keeping.PreservationContext())
        assert [row["step"] for row in rows] == [str(step) for step in LOSSES]
        assert [row["why"] == "best_n" for row in rows] == theirs, best
        assert [row["keep"] for row in rows] == theirs[:-1] + [True], "the newest stays"
    for ours, theirs in KEEPS:
        if "seconds" in str(ours) or "duration" in str(ours):
            continue  # the store's own times
        ckptfs("policy", "set", store, "-", input=json.dumps({"keep": ours}))
        rows = ckptfs.json("retain", "--dry-run", store)
        assert [row["why"] in ours for row in rows] == theirs.should_preserve(infos, context=keeping.PreservationContext()), ours


def test_what_orbax_refuses_at_its_first_use_is_refused(ckptfs, scratch):
    with pytest.raises(ZeroDivisionError):
        saving.FixedIntervalPolicy(0).should_save(Info(1, START), [], context=None)
    with pytest.raises(ValueError):
        keeping.EveryNSteps(0).should_preserve([Info(1, START)], context=None)
    for policy in ({"save": {"fixed_interval": {"interval": 0}}}, {"keep": {"every_n_steps": {"interval_steps": 0}}}):
        done = ckptfs("policy", "check", "-", input=json.dumps(policy), check=False)
        assert done.returncode == 1 and "must be a whole number of at least 1" in done.stderr
