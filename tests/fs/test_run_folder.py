"""A run's folder that has the name of a step: it becomes plain and visible, with all that is in it, and what is open stays open."""

import json
import os
import struct
import subprocess
import sys
import threading
import time

import pytest

from support import trees
from support.fixtures import both_modes, needs_root
from support.mounting import LoopDisk, Mount, wait_until

pytestmark = pytest.mark.timeout(120)


def array(fill=b"1"):
    header = json.dumps({"w": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}}).encode()
    return struct.pack("<Q", len(header)) + header + 256 * fill


def steps(ckptfs, store):
    return sorted(s["name"] for s in ckptfs.json("ls", store))


# --- A step in it -----------------------------------------------------------------------------------------------------


@both_modes
@pytest.mark.parametrize("run", ["123456", "run-3", "run-20261125", "2026/11"])
def test_a_step_that_is_made_in_it_shows_a_run_s_folder(mount, ckptfs, store, commit, run):
    (mount / run).mkdir(parents=True)
    trees.put(mount / run / "config.yaml", b"lr: 1\n")
    assert mount.listing() == []
    log = open(mount / run / "train.log", "a", buffering=1)  # noqa: SIM115
    log.write("one\n")
    (mount / run / "checkpoint-10").mkdir()
    assert mount.listing() == [run.split("/", maxsplit=1)[0]]
    assert sorted(os.listdir(mount / run)) == ["config.yaml", "train.log"]  # the step in it is staged
    log.write("two\n")
    log.close()
    trees.put(mount / run / "checkpoint-10/model.pt", b"model")
    commit(mount / run / "checkpoint-10")
    assert steps(ckptfs, store) == [f"{run}/checkpoint-10"]
    mount.remount()
    assert trees.files(mount / run) == {"config.yaml": b"lr: 1\n", "train.log": b"one\ntwo\n", "checkpoint-10/model.pt": b"model"}
    assert ckptfs.json("sessions", store) == []


@pytest.mark.parametrize("temp", ["checkpoint-10.orbax-checkpoint-tmp", "tmp-checkpoint-10", "checkpoint-10.tmp"])
def test_a_temporary_name_that_becomes_a_step_s_in_it_does_so_too(mount, ckptfs, store, temp):
    made = {"model.pt": b"model"}
    trees.put(mount / "run-0/args.json", b"{}")
    trees.put(mount / "run-0" / temp / "model.pt", b"model")
    assert mount.listing() == []
    os.rename(mount / "run-0" / temp, mount / "run-0/checkpoint-10")
    assert mount.listing() == ["run-0"] and steps(ckptfs, store) == ["run-0/checkpoint-10"]
    assert trees.files(mount / "run-0/checkpoint-10") == made


def test_a_step_that_is_moved_into_it_does_so_too(mount, stage):
    made = stage("checkpoint-5")
    trees.put(mount / "run-0/args.json", b"{}")
    os.rename(mount / "checkpoint-5", mount / "run-0/checkpoint-5")
    assert mount.listing() == ["run-0"] and os.listdir(mount / "run-0") == ["args.json"]
    assert trees.files(mount / "run-0/checkpoint-5") == made


@pytest.mark.parametrize("step, inside", [("checkpoint-500", "global_step500"), ("checkpoint-500", "model"), ("checkpoint-500", "state.orbax-checkpoint-tmp"),
                                          ("checkpoint-500", "7"), ("7.orbax-checkpoint-tmp", "checkpoint-500")])
def test_directories_that_belong_to_a_step_show_nothing(mount, step, inside):
    (mount / step / inside).mkdir(parents=True)
    trees.put(mount / step / inside / "model.pt", b"model")
    assert mount.listing() == []


def test_many_writers_go_on_while_their_folder_becomes_plain(mount):
    """Creates, writes, renames and removals in every directory of it, by several processes, at that moment."""
    script = """
import os, sys
root, me = sys.argv[1], sys.argv[2]
os.makedirs(f"{root}/sub{me}", exist_ok=True)
for i in range(150):
    for d in (root, f"{root}/sub{me}"):
        with open(f"{d}/part-{me}-{i}.tmp", "w") as f:
            f.write(f"{me} {i}")
        os.rename(f"{d}/part-{me}-{i}.tmp", f"{d}/part-{me}-{i}")
        if i % 3 == 0:
            os.unlink(f"{d}/part-{me}-{i}")
"""
    for round_ in range(3):
        run = mount / f"run-{round_}"
        run.mkdir()
        writers = [subprocess.Popen([sys.executable, "-c", script, run, str(n)], stderr=subprocess.PIPE, text=True) for n in range(3)]
        timer = threading.Timer(0.3, lambda d=run: (d / "checkpoint-1").mkdir())
        timer.start()
        timer.join()
        assert [w.communicate()[1] for w in writers] == [""] * 3
        want = {f"{d}part-{n}-{i}": f"{n} {i}".encode() for n in range(3) for i in range(150) if i % 3 for d in ("", f"sub{n}/")}
        assert trees.files(run) == want and run.name in mount.listing()


# --- A log in it ------------------------------------------------------------------------------------------------------


@both_modes
@pytest.mark.parametrize("name, flags", [("train.log", "w"), ("output", "a"), ("metrics.csv", "a"), ("events.out.tfevents.1", "wb")])
def test_a_log_that_is_open_for_five_seconds_shows_a_run_s_folder(mount, ckptfs, store, name, flags):
    run = mount / "123456"
    run.mkdir()
    trees.put(run / "config.yaml", b"lr: 1\n")
    line = b"line\n" if "b" in flags else "line\n"
    log = open(run / name, flags)  # noqa: SIM115
    log.write(line)
    log.flush()
    written = time.monotonic()
    while "123456" not in mount.listing():
        assert time.monotonic() < written + 40
        time.sleep(0.05)
    assert time.monotonic() - written >= 5
    log.write(line)
    log.close()
    assert trees.files(run) == {"config.yaml": b"lr: 1\n", name: b"line\nline\n"}
    assert ckptfs.json("sessions", store) == []
    trees.put(run / "last.pt", array())  # a run's folder stays one
    mount.remount()
    assert sorted(os.listdir(run)) == sorted(["config.yaml", "last.pt", name]) and ckptfs.json("ls", store) == []


@needs_root
def test_a_look_that_comes_in_the_middle_of_a_call_is_made_again_soon(world, agent):
    """A call that waits for the disk is a change that is under way. With the commit_quiet of ten minutes that tests have, the next
    look came after five."""
    disk = LoopDisk(world)
    mount = Mount.new(world, disk.path / "store")
    (mount / "123456").mkdir()
    a = agent()
    disk.freeze()
    a.start("f = open(path, 'a', buffering=1); f.write('line\\n')", path=str(mount / "123456/train.log"))
    time.sleep(2.5)
    disk.thaw()
    a.result()
    wait_until(lambda: "123456" in mount.listing(), 40, "the run's folder")
    a.close()


def never_shows(mount, seconds=8):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert mount.listing() == []
        time.sleep(0.05)


@pytest.mark.parametrize("case", ["beside arrays", "arrays that are appended to", "below", "empty", "closed", "temporary"])
def test_other_logs_show_nothing(mount, case):
    step = mount / ("step_5.orbax-checkpoint-tmp" if case == "temporary" else "step_5")
    (step / "logs").mkdir(parents=True)
    trees.put(step / "config.json", b"{}")
    if case == "beside arrays":
        trees.put(step / "model.safetensors", array())
    name = {"arrays that are appended to": "model.pt", "below": "logs/train.log"}.get(case, "train.log")
    log = open(step / name, "ab", buffering=0)  # noqa: SIM115
    log.write(b"" if case == "empty" else b"\x80\x02half" if name == "model.pt" else b"line\n")
    if case == "closed":
        log.close()
    never_shows(mount)
    log.close()


# --- A file that is written again and again ---------------------------------------------------------------------------

UNIT = 0.5
WRITE = """
def write(path, data):
    with open(path, "wb") as f:
        f.write(data)
"""
REWRITES = {
    "truncated": "write(file, again)",
    "replaced": "write(file + '.tmp', again); os.replace(file + '.tmp', file)",
    "in place": "f = open(file, 'r+b'); f.write(again); f.close()",
}


@pytest.fixture
def options(request):
    return [f"commit_quiet={int(UNIT * 1000)}ms"] if "again" in request.node.name else []


@both_modes
@pytest.mark.parametrize("way", REWRITES)
def test_a_file_that_is_written_again_shows_a_run_s_folder(mount, agent, ckptfs, store, way):
    writer, file = agent(), str(mount / "123456/last.safetensors")
    trees.put(mount / "123456/config.yaml", b"lr: 1\n")
    writer.run(WRITE + "write(file, array)", file=file, array=array())
    reader = os.open(file, os.O_RDONLY)
    time.sleep(1.5 * UNIT)
    assert mount.listing() == []
    writer.run(REWRITES[way], file=file, again=array(b"2"))
    wait_until(lambda: mount.listing() == ["123456"], 10 if way == "in place" else 0)
    assert ckptfs.json("ls", store) == [] and ckptfs.json("sessions", store) == []
    assert trees.files(mount / "123456") == {"config.yaml": b"lr: 1\n", "last.safetensors": array(b"2")}
    assert os.read(reader, 1 << 20) == array(b"2" if way == "in place" else b"1")  # else it is replaced whole
    os.close(reader)
    writer.run(REWRITES[way], file=file, again=array(b"3"))
    mount.remount()
    assert trees.files(mount / "123456")["last.safetensors"] == array(b"3")


@pytest.mark.parametrize("case", ["soon", "by another", "below", "cut off before", "claimed", "no arrays", "beside an open file", "temporary"])
def test_other_files_that_are_written_again_show_nothing(mount, agent, case):
    writer = agent()
    step = mount / ("123456.orbax-checkpoint-tmp" if case == "temporary" else "123456")
    (step / "sub").mkdir(parents=True)
    file = str(step / ("sub/last.safetensors" if case == "below" else "notes.txt" if case == "no arrays" else "last.safetensors"))
    if case == "claimed":
        writer.run(WRITE + "write(file, array)", file=str(step / "random_states_0.pkl"), array=array())
    data = array()[:-1] if case == "cut off before" else b"text" if case == "no arrays" else array()
    writer.run(WRITE + "write(file, array)", file=file, array=data)
    if case == "beside an open file":
        writer.run("f = open(file, 'wb')", file=str(step / "other.safetensors"))
    if case != "soon":
        time.sleep(1.5 * UNIT)
    (agent() if case == "by another" else writer).run(WRITE + "write(file, array)", file=file, array=array(b"2"))
    assert mount.listing() == [] and step.is_dir()
    assert trees.files(step)[os.path.relpath(file, step)] == array(b"2")
