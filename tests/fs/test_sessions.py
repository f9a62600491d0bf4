"""Staged steps by hand: begin, commit, resume."""

import json
import os
import shutil
import subprocess
import time

import pytest

from support import trees
from support.fixtures import both_modes
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(60)


def sessions(ckptfs, store):
    return sorted((s["name"], s["state"]) for s in ckptfs.json("sessions", store))


@both_modes
def test_step_of_any_name_is_begun_written_and_committed_by_verbs(mount, ckptfs, store):
    ckptfs("begin", store, "final model")
    assert mount.listing() == [] and sessions(ckptfs, store) == [("final model", "live")]
    made = trees.fill(mount / "final model")
    assert mount.listing() == []
    ckptfs("commit", store, "final model")
    for _ in range(2):
        assert mount.listing() == ["final model"] and trees.files(mount / "final model") == made
        assert sessions(ckptfs, store) == []
        mount.remount()
    info = ckptfs.json("info", store, "final model")
    assert info["event"] == "verb" and info["profile"] == "generic"


def test_begin_in_a_folder(mount, ckptfs, store):
    (mount / "runs/a").mkdir(parents=True)
    ckptfs("begin", store, "runs/a/best")
    made = trees.fill(mount / "runs/a/best")
    assert mount.listing("runs/a") == []
    ckptfs("commit", store, "runs/a/best")
    assert mount.listing("runs/a") == ["best"] and trees.files(mount / "runs/a/best") == made


@pytest.mark.parametrize("name, hint", [("1000", True), ("plain", True), ("absent/1", True), ("file/1", True), ("..", False), ("a\tb", False)])
def test_begin_of_what_cannot_be_is_refused(mount, stage, commit, ckptfs, store, name, hint):
    stage("1000")
    (mount / "plain").mkdir()
    (mount / "file").write_text("x")
    done = ckptfs("begin", store, name, check=False)
    assert done.returncode == 1 and done.stderr.startswith("ckptfs: ") and ("hint: " in done.stderr) == hint
    assert sessions(ckptfs, store) == [("1000", "live")]


def test_begin_and_resume_want_a_mount(mount, stage, ckptfs, store):
    stage("1000")
    mount.umount()
    for verb, name in (("begin", "2000"), ("resume", "1000")):
        done = ckptfs(verb, store, name, check=False)
        assert done.returncode == 1 and "not mounted" in done.stderr and "hint: " in done.stderr
    assert sessions(ckptfs, store) == [("1000", "interrupted")]


@pytest.mark.parametrize("form", ["commit", "save -", "commit at rest"])
def test_commit_takes_metadata_from_a_file_or_stdin(mount, stage, ckptfs, store, scratch, form):
    stage("1000")
    text = json.dumps({"metrics": {"loss": 0.5}, "extras": {"run": "a\"b"}})
    (scratch / "metadata.json").write_text(text)
    if form == "commit at rest":
        mount.umount()
    if form == "save -":
        ckptfs("commit", "--metadata", "-", store, "1000", input=text)
    else:
        ckptfs("commit", "--metadata", scratch / "metadata.json", store, "1000")
    info = ckptfs.json("info", store, "1000")
    assert info["metrics"] == {"loss": 0.5} and info["extras"] == {"run": 'a"b'}


def test_commit_with_metadata_that_is_none_changes_nothing(mount, stage, ckptfs, store, scratch):
    stage("1000")
    for text in ("{", '{"metrics": 3}', "[" * 100):
        done = ckptfs("commit", "-m", "-", store, "1000", input=text, check=False)
        assert done.returncode == 1 and "hint: " in done.stderr
    assert ckptfs("commit", "-m", scratch / "absent", store, "1000", check=False).returncode == 1
    assert mount.listing() == [] and sessions(ckptfs, store) == [("1000", "live")]


def test_commit_fails_with_its_reason_and_can_be_tried_again(mount, stage, agent, ckptfs, store):
    mount.remount(options=["open_writers=300ms"])
    made = stage("1000")
    writer = agent()
    writer.run("fd = os.open(step + '/busy', os.O_CREAT | os.O_WRONLY); os.write(fd, b'half')", step=str(mount / "1000"))
    done = ckptfs("commit", store, "1000", check=False)
    assert done.returncode == 1 and "busy" in done.stderr.lower() and "hint: " in done.stderr
    assert any("1000/busy" in line or "busy" in line for line in mount.errors())
    writer.run("os.close(fd)")
    ckptfs("commit", store, "1000")
    assert trees.files(mount / "1000") == made | {"busy": b"half"}


def test_questions_are_answered_while_a_commit_waits(mount, stage, agent, ckptfs, store):
    stage("1000")
    writer = agent()
    writer.run("fd = os.open(step + '/busy', os.O_CREAT | os.O_WRONLY); os.write(fd, b'half')", step=str(mount / "1000"))
    commit = subprocess.Popen([ckptfs.path, "commit", store, "1000"], stderr=subprocess.DEVNULL)
    wait_until(lambda: mount.status()["committing"], 5, "the commit")
    began = time.monotonic()
    assert ckptfs.json("status", store)["committing"]
    assert time.monotonic() - began < 2
    writer.run("os.close(fd)")
    assert commit.wait(20) == 0
    assert mount.listing() == ["1000"]


@pytest.fixture
def left(mount, stage, store):
    """A left-over session: something plain had its name when its store was opened. What it holds."""
    made = stage("1000")
    mount.umount()
    (store / "tree/1000").mkdir()
    mount.start()
    (mount / "1000").rmdir()
    return made


@both_modes
@pytest.mark.parametrize("by", ["name", "id"])
def test_left_session_is_resumed_written_on_and_committed(mount, left, commit, ckptfs, store, by):
    made = left
    [left] = ckptfs.json("sessions", store)
    assert left["state"] == "left" and os.listdir(mount / ".ckptfs/staged") == ["1000"] and not (mount / "1000").exists()
    ckptfs("resume", store, left[by])
    assert sessions(ckptfs, store) == [("1000", "interrupted")] and os.listdir(mount / ".ckptfs/staged") == []
    assert trees.files(mount / "1000") == made and mount.listing() == []
    trees.write(mount / "1000/more", b"added")
    os.unlink(mount / "1000/config.json")
    del made["config.json"]
    commit(mount / "1000")
    for _ in range(2):
        assert mount.listing() == ["1000"] and trees.files(mount / "1000") == made | {"more": b"added"}
        mount.remount()


@pytest.mark.parametrize("mounted", [True, False])
def test_interrupted_step_is_completed_as_it_is(mount, stage, ckptfs, store, mounted):
    made = stage("1000")
    mount.kill9()
    if mounted:
        mount.start()
    ckptfs("commit", store, "1000")
    if not mounted:
        mount.start()
    assert mount.listing() == ["1000"] and trees.files(mount / "1000") == made
    assert sessions(ckptfs, store) == []


def test_session_is_not_resumed_over_what_has_its_name(mount, left, stage, commit, ckptfs, store):
    again = stage("1000", seed="again")
    [left] = [s for s in ckptfs.json("sessions", store) if s["state"] == "left"]
    for verb in ("resume", "commit"):
        done = ckptfs(verb, store, left["id"], check=False)
        assert done.returncode == 1 and "hint: " in done.stderr
    [live] = [s for s in ckptfs.json("sessions", store) if s["state"] == "live"]
    assert ckptfs("resume", store, live["id"], check=False).returncode == 1
    commit(mount / "1000")
    assert trees.files(mount / "1000") == again


@pytest.mark.parametrize("mounted", [True, False])
def test_of_two_sessions_of_a_name_the_staged_one_is_meant(mount, left, stage, ckptfs, store, mounted):
    again = stage("1000", seed="again")
    if not mounted:
        mount.umount()
    ckptfs("commit", store, "1000")
    if not mounted:
        mount.start()
    assert trees.files(mount / "1000") == again and trees.files(mount / ".ckptfs/staged/1000") == left
    assert sessions(ckptfs, store) == [("1000", "left")]
    ckptfs("abort", "--yes", store, "1000")
    assert sessions(ckptfs, store) == [] and mount.listing() == ["1000"]


@pytest.mark.parametrize("options", ["staging_ttl=1s"], indirect=True)
def test_left_session_goes_once_its_name_was_completed_by_another_for_so_long(mount, left, stage, commit, ckptfs, store):
    time.sleep(1.2)
    assert sessions(ckptfs, store) == [("1000", "left")], "nobody has completed its name"
    stage("1000", seed="again")
    commit(mount / "1000")
    time.sleep(1.1)
    mount.remount()
    wait_until(lambda: sessions(ckptfs, store) == [], 10, "its end")
    assert any("another session completed" in line for line in mount.errors())


@pytest.mark.parametrize("options", ["staging_ttl=1s"], indirect=True)
def test_what_a_framework_was_writing_and_left_is_dropped_after_a_while(mount, stage, ckptfs, store):
    """By its name: what has a name of its own waits for its user."""
    temp, partial, own = "1000.orbax-checkpoint-tmp-7", "2000.partial_save", "3000"
    made = {name: stage(name) for name in (temp, partial, own)}
    mount.kill9()
    time.sleep(1.2)
    mount.start()
    wait_until(lambda: [s[0] for s in sessions(ckptfs, store)] == [own], 10, "the end of the others")
    assert trees.files(mount / own) == made[own]
    assert sum("staging_ttl" in line for line in mount.errors()) == 2
    wait_until(lambda: len(os.listdir(store / "sessions")) == 1 and os.listdir(store / "trash") == [], 10, "the end of their files")


@pytest.mark.parametrize("options", ["commit_quiet=1s"], indirect=True)
@pytest.mark.parametrize("mounted", [True, False])
def test_several_steps_are_completed_by_one_call(mount, begun, ckptfs, store, mounted):
    made = begun("a", "exp/b", "c")
    if not mounted:
        mount.umount()
    done = ckptfs("commit", store, "a", "nothing", "c", check=False)
    assert done.returncode == 1 and "nothing" in done.stderr and done.stdout == "", "all names are looked up first"
    assert len(sessions(ckptfs, store)) == 3
    said = ckptfs("commit", store, "a", "exp/b").stdout.splitlines()
    assert [line.split(":")[0] for line in said] == ["a", "exp/b"] and f"committed, {len(made['a'])} files" in said[0]
    assert [name for name, _ in sessions(ckptfs, store)] == ["c"]
    if not mounted:
        mount.start()
    assert trees.files(mount / "a") == made["a"] and trees.files(mount / "exp/b") == made["exp/b"] and mount.listing() == ["a", "exp"]


@pytest.fixture
def begun(mount, ckptfs, store):
    """Makes steps by hand, which quiet does not complete: begun("a") returns {name: {path: bytes}}."""
    def begin(*names):
        (mount / "exp").mkdir(exist_ok=True)
        made = {}
        for name in names:
            ckptfs("begin", store, name)
            made[name] = trees.fill(mount / name, seed=name)
        return made
    return begin


@pytest.mark.parametrize("mounted", [True, False])
def test_all_that_stands_still_is_completed_and_nothing_else(mount, begun, stage, agent, ckptfs, store, mounted):
    ckptfs("config", store, "commit_quiet=1s")
    made = begun("a", "exp/b", "open")
    begun("empty")
    shutil.rmtree(mount / "empty/params")
    for path in list((mount / "empty").iterdir()):
        path.unlink()
    stage("7.orbax-checkpoint-tmp-1")
    writer = agent()
    if mounted:
        writer.run("f = open(path, 'wb'); f.write(b'half'); f.flush()", path=str(mount / "open/f"))
    else:
        shutil.rmtree(mount / "open")
        mount.umount()
    said = []
    wait_until(lambda: said.extend(ckptfs("commit", "--all-quiet", store).stdout.splitlines()) or len(said) == 2, 20, "two quiet steps")
    assert sorted(line.split(":")[0] for line in said) == ["a", "exp/b"]
    left_over = {"empty", "7.orbax-checkpoint-tmp-1"} | ({"open"} if mounted else set())
    assert {name for name, _ in sessions(ckptfs, store)} == left_over
    if mounted:
        writer.run("f.close()")
    else:
        mount.start()
    assert {name: trees.files(mount / name) for name in ("a", "exp/b")} == {name: made[name] for name in ("a", "exp/b")}


def test_all_quiet_takes_no_names_and_commit_wants_some(mount, ckptfs, store):
    for words in (["--all-quiet", store, "1000"], [store]):
        done = ckptfs("commit", *words, check=False)
        assert done.returncode == 2 and "hint: " in done.stderr


def test_ls_says_that_steps_are_not_complete_to_people_alone(mount, stage, commit, left, ckptfs, store):
    assert ckptfs("ls", store).stderr == "", "what is left is no step on its way"
    stage("7")
    said = ckptfs("ls", mount.path)
    assert said.stdout == "" and said.stderr == f"ckptfs: 1 step is not complete yet: `ckptfs sessions {mount.path}`\n"
    for words in (["--json"], ["--quiet"], ["--staged"]):
        assert ckptfs("ls", *words, store).stderr == ""
    mount.umount()  # after it the left one has its name again
    assert ckptfs("ls", store).stderr == f"ckptfs: 2 steps are not complete yet: `ckptfs sessions {store}`\n"


NPY = b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000,), }".ljust(117) + b"\n"


def kill_in_the_middle(agent, folder, name="b.npy"):
    a = agent()
    a.run("fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY); os.write(fd, data)", path=str(folder / name), data=NPY + bytes(3000))
    a.kill()
    a.wait_gone(5)


def test_commit_says_what_a_killed_process_left_behind(mount, ckptfs, store, agent):
    folder = mount / "f/step_2"
    folder.mkdir(parents=True)
    trees.write(folder / "a.npy", NPY + bytes(8000))
    kill_in_the_middle(agent, folder)
    said = ckptfs("commit", store, "f/step_2")
    assert said.stdout == "f/step_2: committed, 1 file, 7.9KiB\n"
    assert said.stderr.startswith("ckptfs: f/step_2 is without 1 file, which a killed process had not written to the end: ")
    left = ckptfs.json("sessions", store)
    assert [(s["name"], s["state"], s["files"]) for s in left] == [("f/step_2", "left", 1)] and left[0]["id"] in said.stderr
    assert os.listdir(folder) == ["a.npy"]
    assert ckptfs.json("verify", store)["bad"] == []
    ckptfs("abort", store, left[0]["id"], "--yes")
    assert ckptfs.json("verify", store)["bad"] == []


@pytest.mark.parametrize("when", ["live", "killed", "remounted"])
def test_commit_puts_no_cut_off_array_in_the_place_of_a_whole_one(mount, ckptfs, store, agent, commit, when):
    folder = mount / "1000"
    folder.mkdir()
    for name in ("a.npy", "b.npy"):
        trees.write(folder / name, NPY + bytes(8000))
    commit(folder)
    before = trees.files(folder)
    kill_in_the_middle(agent, folder)
    assert os.path.getsize(folder / "b.npy") < 8000
    if when == "killed":
        mount.kill9()
        mount.start()
    elif when == "remounted":
        mount.remount()
    failed = ckptfs("commit", store, "1000", check=False)
    assert failed.returncode == 1 and "cut off" in failed.stderr and "`ckptfs abort`" in failed.stderr
    assert "b.npy is cut off" in (mount / ".ckptfs/errors").read_text()
    ckptfs("abort", store, "1000", "--yes")
    assert mount.listing() == ["1000"] and trees.files(folder) == before
    assert ckptfs.json("verify", store)["bad"] == []


def test_a_session_of_a_folder_is_named_where_the_folder_is_left_out(mount, ckptfs, store):
    (mount / "f/step_2").mkdir(parents=True)
    said = ckptfs("commit", store, "step_2", check=False).stderr
    assert said == "ckptfs: step_2: no such staged step\nhint: give its folder, too: f/step_2\n"


def test_status_says_how_far_a_save_is_and_what_it_waits_for(mount, ckptfs, store):
    (mount / "f/step_2").mkdir(parents=True)
    with open(mount / "f/step_2/a.bin", "wb", buffering=0) as f:
        f.write(bytes(3 << 20))
        lines = ckptfs("status", store).stdout.splitlines()
        row = next(i for i, line in enumerate(lines) if line.startswith("staged  "))
        assert lines[row].startswith("staged       f/step_2 (live) for ") and ": 1 file, 3.0MiB, 1 open for writing, " in lines[row]
        assert lines[row].endswith("/s") and lines[row + 1].startswith("             waits for ")


def test_where_steps_are_listed_or_named_those_that_are_staged_there_are_told(mount, ckptfs, store, commit):
    for name in ("a/step_0", "a/step_1", "a/step_2", "b/step_0", "b/step_3", "c/step_4"):
        (mount / name).mkdir(parents=True)
    for folder in ("a", "b"):
        trees.write(mount / folder / "step_0/x", b"x")
        commit(mount / folder / "step_0")
    (mount / "c/step_5").mkdir()
    hint = f"not complete yet: `ckptfs sessions {store}`\n"
    assert ckptfs("ls", store, "a").stderr == f"ckptfs: 2 steps are {hint}"
    assert ckptfs("ls", store, "b/").stderr == f"ckptfs: 1 step is {hint}"
    none = ckptfs("latest", store, "c", check=False)
    assert none.returncode == 1 and none.stderr == f"ckptfs: c: no committed step\nckptfs: 2 steps are {hint}"
    assert ckptfs("latest", store, "c", "--quiet", check=False).stderr == ""


@both_modes
def test_an_open_that_writes_nothing_publishes_no_file_that_a_killed_process_left(mount, ckptfs, store, agent):
    """HDF5 opens what has the name, and closes it, before it makes its file."""
    (mount / "run").mkdir()
    path = mount / "run/model.npy"
    kill_in_the_middle(agent, mount / "run", "model.npy")
    left = path.read_bytes()
    for flags in (os.O_RDWR, os.O_WRONLY | os.O_APPEND):
        os.close(os.open(path, flags))
        wait_until(lambda: [(s["name"], s["state"]) for s in ckptfs.json("sessions", store)] == [("model.npy", "left")], what="its release")
        assert mount.listing("run") == [] and path.read_bytes() == left
    with open(path, "ab") as f:
        f.write(bytes(len(NPY) + 8000 - len(left)))
    assert mount.listing("run") == ["model.npy"]
    wait_until(lambda: ckptfs.json("sessions", store) == [], what="the end of its session")
