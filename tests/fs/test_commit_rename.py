"""Names: what a rename completes and what it does not, and that nobody ever sees half a step."""

import errno
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support import trees
from support.commits import assert_whole, error_line
from support.fixtures import FULL, both_modes
from support.mounting import errno_name
from support.watcher import watch

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def options():
    """Waits for open writers are short here, but where a test is about them."""
    return ["open_writers=1s"]


# --- Names ------------------------------------------------------------------------------------------------------------


def test_second_mkdir_of_a_staged_name_is_eexist(mount, step, agent):
    assert agent().errno_of("os.mkdir(step)", step=step) == "EEXIST"
    assert agent().errno_of("os.mkdir(step)", step=step) == "EEXIST"
    assert subprocess.run(["mkdir", "-p", step], check=False).returncode == 0


@both_modes
@pytest.mark.parametrize("temp, final", [("1000.orbax-checkpoint-tmp", "1000"), ("1000.orbax-checkpoint-tmp-1234567", "1000"),
                                         ("5.partial_save", "5"), ("tmp-checkpoint-500", "checkpoint-500"), ("best.partial_save", "best")])
def test_rename_from_a_temp_name_commits(mount, stage, ckptfs, store, temp, final):
    made = stage(temp)
    assert mount.listing() == [] and not (mount / final).exists()
    with pytest.raises(FileNotFoundError):
        os.open(mount / final, os.O_RDONLY)
    os.rename(mount / temp, mount / final)
    assert mount.listing() == [final]
    with pytest.raises(FileNotFoundError):
        os.stat(mount / temp)
    assert ckptfs.json("info", store, final)["event"] == "rename"
    assert_whole(mount, made, final)


def test_rename_from_a_temp_name_commits_in_a_folder_too(mount):
    (mount / "run").mkdir()
    (mount / "run/7.orbax-checkpoint-tmp").mkdir()
    made = trees.fill(mount / "run/7.orbax-checkpoint-tmp")
    assert mount.listing("run") == []
    os.rename(mount / "run/7.orbax-checkpoint-tmp", mount / "run/7")
    for _ in range(2):
        assert mount.listing("run") == ["7"]
        assert trees.files(mount / "run/7") == made
        mount.remount()


@pytest.mark.parametrize("old, new", [("checkpoint-500", "checkpoint-501"), ("1000", "1001"), ("1.orbax-checkpoint-tmp", "2.orbax-checkpoint-tmp"),
                                      ("1000", "1000.orbax-checkpoint-tmp")])
def test_rename_of_a_staged_step_to_another_step_s_name_leaves_it_staged(mount, stage, commit, old, new):
    made = stage(old)
    os.rename(mount / old, mount / new)
    assert mount.listing() == []
    assert not (mount / old).exists()
    assert trees.files(mount / new) == made
    (mount / old).mkdir()
    commit(mount / new)
    assert_whole(mount, made, new)


# --- Names without a form -------------------------------------------------------------------------------------------------


def steps(ckptfs, store):
    return sorted(s["name"] for s in ckptfs.json("ls", store))


def pairs(mount):
    (mount / "run").mkdir(exist_ok=True)
    (mount / "elsewhere").mkdir(exist_ok=True)
    return [("step_10.tmp", "step_10"), ("checkpoint_20.tmp-1700000000", "checkpoint_20"), (".tmp_step_30", "step_30"), ("tmp.40", "40"),
            ("tmp_step-50", "run/step-50"), ("run/x.partial", "elsewhere/checkpoint-60")]


@both_modes
def test_rename_from_a_temporary_name_of_ones_own_commits(mount, ckptfs, store):
    for temp, final in pairs(mount):
        (mount / temp).mkdir()
        made = trees.fill(mount / temp)
        assert os.path.basename(temp) in os.listdir((mount / temp).parent)
        os.rename(mount / temp, mount / final)
        assert final in steps(ckptfs, store) and trees.files(mount / final) == made
        assert ckptfs.json("info", store, final)["event"] == "rename"
        assert not (mount / temp).exists()
    mount.kill9()
    mount.start()
    assert len(steps(ckptfs, store)) == len(pairs(mount))


def test_a_folder_that_is_a_run_s_stays_plain_under_a_step_s_name(mount, ckptfs, store, commit):
    trees.put(mount / "log/train.log", b"line\n")
    trees.put(mount / "log/model.pt", b"model")
    trees.put(mount / "open/model.pt", b"model")
    (mount / "steps/checkpoint-1").mkdir(parents=True)
    trees.put(mount / "steps/checkpoint-1/model.pt", b"model")
    commit(mount / "steps/checkpoint-1")
    (mount / "empty").mkdir()
    with open(mount / "open/results.txt", "w") as results:
        results.write("first\n")
        results.flush()
        for n, name in enumerate(("log", "open", "steps", "empty")):
            os.rename(mount / name, mount / f"step_{n}")
        results.write("last\n")
    assert steps(ckptfs, store) == ["step_2/checkpoint-1"]
    assert mount.listing() == ["step_0", "step_1", "step_2", "step_3"]
    assert (mount / "step_1/results.txt").read_text() == "first\nlast\n"
    assert trees.files(mount / "step_0") == {"train.log": b"line\n", "model.pt": b"model"}


def test_a_file_that_was_just_closed_is_not_open(mount, ckptfs, store):
    for n in range(20):
        (mount / "tmp").mkdir()
        for i in range(5):
            with open(mount / f"tmp/model_{i}.bin", "wb") as f:
                f.write(b"x" * 100_000)
        os.rename(mount / "tmp", mount / f"step_{n}")
    assert len(steps(ckptfs, store)) == 20


def test_a_folder_that_could_not_be_committed_is_where_it_was(mount, ckptfs, store):
    (mount / "tmp").mkdir()
    made = trees.fill(mount / "tmp")
    trees.put(mount / "step_1/model.pt", b"there")
    with pytest.raises(OSError) as e:
        os.rename(mount / "tmp", mount / "step_1")
    assert e.value.errno == errno.ENOTEMPTY
    assert trees.files(mount / "tmp") == made and (mount / "step_1/model.pt").read_bytes() == b"there"
    assert mount.listing() == ["tmp"]


@pytest.mark.parametrize("old", ["step_21", "epoch_1", "checkpoint-5", "7"])
def test_a_staged_step_that_is_renamed_to_a_plain_name_is_a_plain_folder(mount, stage, ckptfs, store, old):
    made = stage(old)
    log = open(mount / old / "train.log", "a", buffering=1)  # noqa: SIM115
    log.write("one\n")
    (mount / "runs").mkdir()
    os.rename(mount / old, mount / "runs/best")
    log.write("two\n")
    log.close()
    assert os.listdir(mount / "runs") == ["best"] and mount.listing() == ["runs"]
    assert trees.files(mount / "runs/best") == made | {"train.log": b"one\ntwo\n"}
    assert ckptfs.json("sessions", store) == []
    mount.remount()
    assert trees.files(mount / "runs/best") == made | {"train.log": b"one\ntwo\n"}


@pytest.mark.parametrize("old, new, step", [("step80-tmp", "step80", True), ("tmp.81", "81", True), ("step_82", "step_83", False),
                                            ("x.orbax-checkpoint-tmp", "step_84", True), ("a", "b", False), ("step_85", "plain85", False),
                                            ("best.partial_save", "best", True), ("a", "1.orbax-checkpoint-tmp", False)])
def test_an_empty_directory_is_replaced(mount, ckptfs, store, old, new, step):
    (mount / old).mkdir()
    made = trees.fill(mount / old)
    (mount / new).mkdir()
    os.replace(mount / old, mount / new)
    assert trees.files(mount / new) == made and not (mount / old).exists()
    assert steps(ckptfs, store) == ([new] if step else [])
    if new in mount.listing():
        mount.remount()
    assert trees.files(mount / new) == made


def test_a_directory_that_is_not_empty_is_not_replaced(mount, stage):
    for old in ("a", "step_1", "1.orbax-checkpoint-tmp"):
        stage(old)
    for new in ("plain", "step_2"):
        trees.put(mount / new / "file", b"file")
        for old in ("a", "step_1", "1.orbax-checkpoint-tmp"):
            with pytest.raises(OSError) as e:
                os.rename(mount / old, mount / new)
            assert e.value.errno == errno.ENOTEMPTY, (old, new)
        assert (mount / new / "file").read_bytes() == b"file"


def test_another_rank_s_late_file_joins_a_step_that_is_renamed(mount, ckptfs, store):
    temp = mount / "tmp-checkpoint-20"
    trees.put(temp / "model.safetensors", b"model")
    with open(temp / "rng_state_1.pth", "wb") as late:
        late.write(b"half")
        late.flush()
        os.rename(temp, mount / "checkpoint-20")
        assert mount.listing() == ["checkpoint-20"]
        late.write(b" rest")
    assert (mount / "checkpoint-20/rng_state_1.pth").read_bytes() == b"half rest"


def test_rename_of_a_temp_name_inside_a_step_is_content(mount):
    root = mount / "1.orbax-checkpoint-tmp"
    (root / "state.orbax-checkpoint-tmp").mkdir(parents=True)
    trees.write(root / "state.orbax-checkpoint-tmp/d", b"data")
    os.rename(root / "state.orbax-checkpoint-tmp", root / "state")
    assert mount.listing() == []
    os.rename(root, mount / "1")
    assert trees.files(mount / "1") == {"state/d": b"data"}


def test_rename_of_a_staged_step_into_another_moves_its_tree_there(mount, agent):
    """What Orbax's partial saving does: saves in a temp name, each grafted into the step that is being put together."""
    final = mount / "5.partial_save"
    final.mkdir()
    made = {}
    for i in range(2):
        temp = mount / "5.partial_save.orbax-checkpoint-tmp"
        temp.mkdir()
        part = trees.fill(temp, seed=i)
        trees.write(temp / "commit_success.txt", b"")
        held = os.open(temp / "config.json", os.O_RDONLY)
        ino = os.stat(temp / "params").st_ino
        os.rename(temp, final / f"5.partial_save.pending_{i}")
        assert not temp.exists() and mount.listing() == [] and mount.listing("5.partial_save") == [f"5.partial_save.pending_{k}" for k in range(i + 1)]
        assert os.stat(final / f"5.partial_save.pending_{i}/params").st_ino == ino
        assert os.read(held, 100) == part["config.json"]
        os.close(held)
        made |= {f"state{i}/{p}": d for p, d in part.items()} | {f"state{i}/commit_success.txt": b""}
    assert not (mount / "5").exists()
    for i in range(2):
        os.rename(final / f"5.partial_save.pending_{i}", final / f"state{i}")
    os.rename(final, mount / "5")
    assert mount.listing() == ["5"]
    assert_whole(mount, made, "5")


def test_commit_under_the_name_of_a_committed_step_is_refused_and_loses_nothing(mount, stage, commit):
    first = stage("1000", seed="first")
    commit(mount / "1000")
    second = stage("1000.orbax-checkpoint-tmp", seed="second")
    with pytest.raises(OSError) as e:
        os.rename(mount / "1000.orbax-checkpoint-tmp", mount / "1000")
    assert errno_name(e.value) in ("ENOTEMPTY", "EEXIST")
    assert trees.files(mount / "1000") == first
    assert trees.files(mount / "1000.orbax-checkpoint-tmp") == second
    os.rename(mount / "1000.orbax-checkpoint-tmp", mount / "1001")
    assert mount.listing() == ["1000", "1001"]
    assert_whole(mount, second, "1001")


def test_commit_by_rename_with_an_open_writer_is_ebusy_soon(mount, stage, agent):
    made = stage("1000.orbax-checkpoint-tmp")
    temp = mount / "1000.orbax-checkpoint-tmp"
    writer = agent()
    writer.run("fd = os.open(p, os.O_CREAT | os.O_WRONLY); os.write(fd, b'h')", p=str(temp / "busy"))
    began = time.monotonic()
    with pytest.raises(OSError) as e:
        os.rename(temp, mount / "1000")
    assert errno_name(e.value) == "EBUSY"
    assert time.monotonic() - began < 2.0, "the folder is locked for everyone meanwhile"
    error_line(mount, "EBUSY", "busy", str(writer.pid))
    assert mount.listing() == [] and not (mount / "1000").exists()
    writer.run("os.close(fd)")
    os.rename(temp, mount / "1000")
    assert_whole(mount, made | {"busy": b"h"})


def test_removing_a_staged_step_frees_its_name_and_touches_no_other(mount, stage, commit):
    kept = stage("999")
    commit(mount / "999")
    stage("1000.orbax-checkpoint-tmp")
    subprocess.run(["rm", "-r", mount / "1000.orbax-checkpoint-tmp"], check=True)
    assert not (mount / "1000.orbax-checkpoint-tmp").exists()
    made = stage("1000.orbax-checkpoint-tmp", seed="again")
    os.rename(mount / "1000.orbax-checkpoint-tmp", mount / "1000")
    assert_whole(mount, made, "1000")
    assert_whole(mount, kept, "999")


# --- Watched ----------------------------------------------------------------------------------------------------------


@both_modes
@pytest.mark.timeout(240)
def test_no_step_is_ever_listed_before_it_is_whole(world, mount, commit):
    (mount / "run").mkdir()
    steps = 12
    for _ in range(1 if not FULL else 16):  # few at a time: the watcher reads all of them at each look
        with watch(world, mount.path, mount / "run", ignored=["run"]) as w:
            def by_marker():
                for n in range(steps):
                    (mount / str(n)).mkdir()
                    trees.fill(mount / str(n), seed=n, files=12)
                    commit(mount / str(n))

            def by_rename():
                for n in range(steps):
                    temp = mount / f"run/{n}.orbax-checkpoint-tmp"
                    temp.mkdir()
                    trees.fill(temp, seed=n, files=12)
                    os.rename(temp, mount / f"run/{n}")

            with ThreadPoolExecutor() as pool:
                for saver in [pool.submit(f) for f in (by_marker, by_rename)]:
                    saver.result()
        w.check(expect=2 * steps)
        assert len(w.sights) > steps
        for name in [str(n) for n in range(steps)] + [f"run/{n}" for n in range(steps)]:
            shutil.rmtree(mount / name)
