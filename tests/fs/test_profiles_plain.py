"""Acts that look like the last one of a framework and complete nothing: folders of a run, copies, saves without arrays."""

import os
import shutil
import time

import pytest

from support import trees
from support.commits import error_line
from support.fixtures import both_modes
from support.last_acts import accelerate, arrays, dcp, fill, hf_storage, lightning, listed, megatron, trainer
from support.mounting import kill_quietly, wait_until
from test_profiles import STAGED, options  # noqa: F401 (a fixture)

pytestmark = pytest.mark.timeout(60)


@both_modes
@pytest.mark.parametrize("log", ["train.log", "metrics.jsonl", "runs/events.out.tfevents.1"])
def test_a_run_s_folder_with_a_log_stays_plain_whatever_is_saved_into_it(mount, log):
    """reports of users: state saved over and over beside the run's log. Every save succeeds at once, and no line is lost."""
    folder = mount / "run"
    lines = b""
    for n in range(3):
        with open(trees_path(folder / log), "ab") as f:
            f.write(b"line %d\n" % n)
        lines += b"line %d\n" % n
        for writer in (lambda f: accelerate(f, completes=False), dcp, megatron):
            for _ in writer(str(folder)):
                pass
        with open(folder / log, "ab") as f:
            f.write(b"more\n")
        lines += b"more\n"
    time.sleep(3)
    assert listed(mount) == [] and mount.listing() == ["run"] and mount.errors() == []
    assert (folder / log).read_bytes() == lines


def trees_path(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@both_modes
def test_a_folder_with_files_of_another_process_or_of_another_time_stays_plain(mount, agent):
    for name in ("before", "opened", "copied"):
        (mount / name).mkdir()
    trees.write(mount / "before/hparams.yaml", b"lr: 1\n")
    time.sleep(0.1)
    a = agent()  # began later than that file was made
    a.run("fd = os.open(path, os.O_CREAT | os.O_WRONLY)", path=str(mount / "opened/results"))
    trees.write(mount / "copied/old.pt", arrays("old.pt", 100))
    os.utime(mount / "copied/old.pt", (1e9, 1e9))
    for name in ("before", "opened", "copied"):
        a.run("open(path, 'wb').write(data)", path=str(mount / name / "__0_0.distcp"), data=os.urandom(1000))
        a.run("open(path + '.tmp', 'wb').write(b'plan'); os.rename(path + '.tmp', path)", path=str(mount / name / ".metadata"))
    assert listed(mount) == [] and mount.errors() == []


@both_modes
@pytest.mark.parametrize("writer,name", STAGED, ids=[n for _, n in STAGED])
def test_without_array_data_no_event_counts(mount, writer, name):
    folder = mount / name
    folder.mkdir()
    save = writer(str(folder)) if writer is not accelerate else accelerate(str(folder), completes=False)
    next(save)
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in ("tensorstore_index.json", "checkpoint_metadata.json"):
            trees.write(path, b"text\n")
    if writer is accelerate:
        trees.write(folder / "random_states_0.pkl", b"text\n")
    else:
        with pytest.raises(StopIteration):
            next(save)
    assert listed(mount) == []


@both_modes
def test_a_tree_that_is_copied_with_its_times_is_no_save(mount, scratch):
    """shutil.copytree: the last file of the framework comes in any order."""
    src = scratch / "checkpoint-5"
    for _ in trainer(str(src)):
        pass
    for path in src.iterdir():
        os.utime(path, (1e9, 1e9))
    shutil.copytree(src, mount / "checkpoint-6")
    shutil.copytree(src, mount / "best")
    os.unlink(mount / "checkpoint-6/trainer_state.json")
    trees.write(mount / "checkpoint-6/trainer_state.json", b"{}")
    trees.write(mount / "best/trainer_state.json", b"{}")
    assert listed(mount) == [] and mount.listing() == ["best"]


@both_modes
def test_lightning_s_folder_is_complete_at_meta_pt_and_not_before(mount):
    save = lightning(str(mount / "run/last.ckpt"))
    next(save)
    os.rename(mount / "run/last.ckpt/.metadata.tmp", mount / "run/last.ckpt/.metadata")
    assert listed(mount) == []
    trees.write(mount / "run/last.ckpt/meta.pt", b"")
    assert listed(mount) == []
    trees.write(mount / "run/last.ckpt/meta.pt", arrays("meta.pt", 100))
    assert listed(mount) == ["run/last.ckpt"]


@both_modes
def test_transformers_index_in_the_middle_of_a_save_completes_nothing(mount):
    folder = str(mount / "checkpoint-5")
    fill(folder, "config.json")
    for _ in hf_storage(folder):
        pass
    assert listed(mount) == []


@both_modes
def test_accelerate_s_custom_checkpoints_are_awaited_when_the_step_before_has_them(mount):
    fill(str(mount / "checkpoint_1"), "model.safetensors", "custom_checkpoint_0.pkl")
    save = accelerate(str(mount / "checkpoint_1"), completes=False)
    for _ in save:
        pass
    wait_until(lambda: listed(mount) == ["checkpoint_1"], what="the first")
    for _ in accelerate(str(mount / "checkpoint_2"), completes=False):
        pass
    wait_until(mount.errors, what="a line in errors")
    error_line(mount, "checkpoint_2", "custom_checkpoint_0.pkl")
    assert listed(mount) == ["checkpoint_1"]
    fill(str(mount / "checkpoint_2"), "custom_checkpoint_0.pkl")
    wait_until(lambda: listed(mount) == ["checkpoint_1", "checkpoint_2"], what="the second")
    assert "custom_checkpoint_0.pkl" in os.listdir(mount / "checkpoint_2")


@both_modes
def test_a_descriptor_that_a_child_inherited_does_not_hold_accelerate_s_step_back(mount, agent):
    writer, folder = agent(), mount / "checkpoint_1"
    fill(str(folder), "model.safetensors")
    child = writer.run("""
fd = os.open(path, os.O_CREAT | os.O_WRONLY)
os.write(fd, data)
pid = os.fork()
if not pid:
    time.sleep(600)
os.close(fd)
pid
""", path=str(folder / "optimizer.bin"), data=arrays("optimizer.bin", 1000))
    try:
        for _ in accelerate(str(folder), completes=False):
            pass
        wait_until(lambda: listed(mount) == ["checkpoint_1"], what="the step")
    finally:
        kill_quietly(child)
