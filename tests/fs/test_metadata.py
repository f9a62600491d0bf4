"""What a step says of itself: user.ckptfs.meta.* while it is staged, and metrics.json; how they are read and looked for."""

import errno
import json
import os

import pytest

from support import trees
from support.fixtures import both_modes
from support.last_acts import trainer

pytestmark = pytest.mark.timeout(60)
META = "user.ckptfs.meta."


def set_meta(path, name, value):
    os.setxattr(path, META + name, value if isinstance(value, bytes) else value.encode())


def get_meta(path, name):
    return os.getxattr(path, META + name).decode()


def error_of(call, *args):
    with pytest.raises(OSError) as e:
        call(*args)
    return errno.errorcode[e.value.errno]


def said(ckptfs, store, step):
    info = ckptfs.json("info", store, step)
    return info["extras"], info["metrics"]


@both_modes
def test_attributes_of_a_staged_step_become_its_extras(mount, stage, commit, store, ckptfs, mode):
    stage("1000")
    step = mount / "1000"
    set_meta(step, "tag", "the best")
    set_meta(step, "lr", "3e-4")
    set_meta(step, "shape", '{"layers": [1, 2]}')
    set_meta(step, "wrong", "x")
    set_meta(step, "by", "hand")
    os.removexattr(step, META + "wrong")
    assert get_meta(step, "tag") == "the best" and error_of(get_meta, step, "wrong") == "ENODATA"
    assert os.listxattr(step) == [], "as all of ours they are in no list: who copies a tree takes none along"
    commit(step, b'{"extras":{"by":"marker"},"metrics":{"loss":1}}')
    want = {"tag": "the best", "lr": 3e-4, "shape": {"layers": [1, 2]}, "by": "marker"}
    for _ in range(2):
        assert said(ckptfs, store, "1000") == (want, {"loss": 1})
        assert get_meta(step, "tag") == "the best" and get_meta(step, "shape") == '{"layers":[1,2]}' and get_meta(step, "by") == "marker"
        assert error_of(get_meta, step, "none") == error_of(get_meta, step / "config.json", "tag") == "ENODATA"
        assert os.listxattr(step) == []
        assert mount.errors() == []
        mount.remount()
    [row] = ckptfs.json("ls", store, "--where", "extras.lr < 0.001 and extras.tag = 'the best'")
    assert row["extras"] == want


def test_they_are_kept_over_the_end_of_a_daemon_and_a_rename(mount, stage, store, ckptfs):
    for name, tag in (("tmp-checkpoint-5", "x"), ("1000", "y"), ("2000", "z")):
        stage(name)
        set_meta(mount / name, "tag", tag)
    mount.kill9()
    mount.start()
    set_meta(mount / "2000", "tag", "again")
    os.rename(mount / "tmp-checkpoint-5", mount / "checkpoint-5")
    for name in ("1000", "2000"):
        ckptfs("commit", store, name)
    for name, tag in (("checkpoint-5", "x"), ("1000", "y"), ("2000", "again")):
        assert said(ckptfs, store, name) == ({"tag": tag}, {})


def test_those_of_changes_that_were_given_up_are_kept_with_them(mount, stage, commit, store, ckptfs):
    stage("1000")
    set_meta(mount / "1000", "tag", "first")
    commit(mount / "1000")
    trees.write(mount / "1000/params/layer_0/w0.bin", b"rewritten")
    set_meta(mount / "1000", "tag", "second")
    mount.kill9()
    mount.start()
    assert said(ckptfs, store, "1000") == ({"tag": "first"}, {})
    assert error_of(set_meta, mount / ".ckptfs/staged/1000", "tag", "third") == "EROFS"
    ckptfs("commit", store, "1000")
    assert said(ckptfs, store, "1000") == ({"tag": "second"}, {})


def test_what_cannot_be_said_so_is_refused_in_one_line(mount, stage, commit, store, ckptfs):
    stage("1000")
    step = mount / "1000"
    os.mkdir(mount / "plain")
    for path in (step / "config.json", step / "params", mount / "plain", mount.path):
        assert error_of(set_meta, path, "a", "1") == error_of(os.removexattr, path, META + "a") == "EINVAL"
    lines = len(mount.errors())
    for name, value in (("a", b"\xff"), ("a", b"x" * 4097), ("\udcff", b"1"), ("a", b"[" * 40 + b"]" * 40)):
        assert error_of(set_meta, step, name, value) == "EINVAL"
        lines += 1
        assert len(mount.errors()) == lines and META in mount.errors()[-1] and "EINVAL" in mount.errors()[-1]
    for i in range(64):
        set_meta(step, f"n{i}", "1")
    assert error_of(set_meta, step, "a", "1") == "EINVAL"
    set_meta(step, "n63", "2")
    commit(step)
    assert said(ckptfs, store, "1000")[0] == {f"n{i}": 1 + (i == 63) for i in range(64)}
    assert error_of(set_meta, step, "n1", "5") == error_of(os.removexattr, step, META + "n1") == "EROFS"
    assert "marker" in mount.errors()[-1] and ckptfs.json("info", store, "1000")["version"] == 1
    assert error_of(os.setxattr, step, "user.ckptfs.temporary", b"true") == "EPERM"


@both_modes
def test_metrics_json_of_a_framework_becomes_the_metrics(mount, store, ckptfs, mode):
    save = trainer(str(mount / "checkpoint-500"))
    next(save)
    trees.write(mount / "checkpoint-500/metrics.json", b'{"eval_loss": 0.25, "epoch": 3}')
    with pytest.raises(StopIteration):
        next(save)
    assert said(ckptfs, store, "checkpoint-500") == ({}, {"eval_loss": 0.25, "epoch": 3})
    trees.write(mount / "checkpoint-500/.finalize", b'{"extras":{"tag":"x"},"metrics":{"epoch":4}}')
    assert said(ckptfs, store, "checkpoint-500") == ({"tag": "x"}, {"eval_loss": 0.25, "epoch": 4}), "what a later marker does not say stays"
    assert mount.errors() == []


@both_modes
def test_metrics_of_a_later_evaluation_are_known_at_the_close_of_their_file(mount, stage, commit, store, ckptfs, mode):
    stage("1000")
    commit(mount / "1000", b'{"extras":{"by":"marker"},"metrics":{"loss":9,"epoch":4}}')
    trees.write(mount / "1000/metrics.json", b'{"loss": 2, "accuracy": 0.5}')
    assert [row["name"] for row in ckptfs.json("ls", store, "--where", "loss < 3")] == ["1000"]
    trees.write(mount / "1000/params/metrics.json", b'{"loss": 0}')
    want = {"by": "marker"}, {"loss": 2, "epoch": 4, "accuracy": 0.5}
    assert said(ckptfs, store, "1000") == want
    mount.kill9()
    assert said(ckptfs, store, "1000") == want
    mount.start()
    assert said(ckptfs, store, "1000") == want and mount.errors() == []


def test_what_is_no_metrics_json_is_added_to_a_step_all_the_same(mount, step, commit, store, ckptfs):
    commit(mount / "1000", b'{"metrics":{"loss":9}}')
    path = mount / "1000/metrics.json"
    trees.write(path, b'{"loss": 1')
    assert said(ckptfs, store, "1000") == ({}, {"loss": 9}) and path.read_bytes() == b'{"loss": 1'
    [line] = mount.errors()
    assert "1000" in line and "metrics.json" in line


BROKEN = {"empty": b"", "cut": b'{"loss": 1', "list": b"[1]", "binary": os.urandom(3000) + b"\xff", "large": b'{"a":1}' + b" " * 70000, "deep": b'{"a":' + b"[" * 60000,
          "texts": b'{"loss": "low"}'}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_metrics_json_fails_no_commit(mount, stage, commit, store, ckptfs, text):
    made = stage("1000")
    trees.write(mount / "1000/metrics.json", text)
    commit(mount / "1000")
    assert said(ckptfs, store, "1000") == ({}, {}) and trees.files(mount / "1000") == dict(made, **{"metrics.json": text})
    [line] = mount.errors()
    assert "1000" in line and "metrics.json" in line


def test_save_takes_metrics_along(store, ckptfs, scratch):
    ckptfs("init", store)
    (scratch / "1000").mkdir()
    trees.write(scratch / "1000/metrics.json", b'{"loss": 2}')
    ckptfs("save", store, scratch / "1000")
    assert said(ckptfs, store, "1000") == ({}, {"loss": 2})


def test_metric_that_is_no_number_costs_no_commit(mount, step, commit, store, ckptfs):
    """As json.dumps writes it when a run diverges."""
    commit(step, json.dumps({"metrics": {"loss": float("nan"), "norm": float("inf"), "n": 1}, "extras": {"why": "diverged"}}).encode())
    assert said(ckptfs, store, "1000") == ({"why": "diverged"}, {"n": 1})


def test_metric_whose_name_is_near_to_a_field_is_found(mount, stage, commit, store, ckptfs):
    for name, mae in (("1", 3), ("2", 1)):
        stage(name)
        trees.write(mount / name / "metrics.json", json.dumps({"mae": mae}).encode())
        commit(mount / name)
    assert ckptfs("ls", store, "--where", "mae<2").stdout == "2\n"
    assert ckptfs("ls", store, "--sort", "mae").stdout == "2\n1\n"
    for words in (["--where", "nam=2"], ["--sort", "nam"]):
        wrong = ckptfs("ls", store, *words, check=False)
        assert wrong.returncode == 2 and "no step has such a metric" in wrong.stderr and "did you mean name?" in wrong.stderr


def test_steps_are_found_and_sorted_by_metrics(mount, stage, commit, store, ckptfs):
    losses = {"1": "1.5", "2": "2", "3": "NaN", "4": None, "5": "2.0", "6": "-Infinity", "7": "3"}
    for name, loss in losses.items():
        stage(name)
        if loss:
            trees.write(mount / name / "metrics.json", f'{{"loss": {loss}, "n": {name}}}'.encode())
        commit(mount / name)
    assert len(mount.errors()) == 2, "of NaN and -Infinity"

    def where(*words):
        return ckptfs("ls", store, *words).stdout.split()
    assert where("--where", "metrics.loss < 2") == where("--where", "loss<2") == ["1"]
    assert where("--sort", "n") == where("--sort", "metrics.n")
    assert where("--where", "metrics.loss <= 2") == ["1", "2", "5"]
    assert where("--where", "metrics.loss = 2") == ["2", "5"]
    assert where("--where", "metrics.loss >= 2") == ["2", "5", "7"]
    assert where("--where", "metrics.loss != 2") == ["1", "3", "4", "6", "7"], "what is missing is not equal"
    assert where("--where", "metrics.loss < 9 and metrics.n > 1") == ["2", "5", "7"]
    assert where("--sort", "metrics.loss") == ["1", "2", "5", "7", "3", "4", "6"], "what is missing comes last, equals as they were"
    assert where("--sort", "metrics.loss", "-r")[:2] == ["7", "2"] and where("--sort", "metrics.loss", "-r")[-3:] == ["3", "4", "6"]
    rows = {row["name"]: row["metrics"] for row in ckptfs.json("ls", store)}
    assert rows["3"] == {"n": 3} and rows["4"] == {} and rows["5"] == {"loss": 2.0, "n": 5}
    assert json.loads(ckptfs("info", store, "1", "--json").stdout)["metrics"] == {"loss": 1.5, "n": 1}
