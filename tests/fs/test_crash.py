"""What is found after the death of a daemon: steps, unfinished sessions, a damaged index. test_kill.py has its death under many writers."""

import errno
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import saver, trees
from support.fixtures import FULL, LONG, both_modes
from support.mounting import Mount, wait_until

pytestmark = pytest.mark.timeout(120 if not FULL else 900)

KILLS = 100 if LONG else 25 if FULL else 3
SAMPLE = 20


class Saver:
    """One saving client and its log, over the daemon's deaths."""

    def __init__(self, world, folder, way):
        self.world, self.folder, self.way = world, Path(folder), way
        self.log = world.scratch / f"saver-{self.folder.name}-{way}.log"
        self.process = None
        self.whole = set()  # steps that were looked at whole

    def events(self, kind):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [int(line.split()[1]) for line in lines if line.split()[0] == kind]

    def start(self):
        done = {int(n) for n in os.listdir(self.folder) if n.isdigit()}
        first = next(n for n in range(10**6) if n not in done)
        acked = len(self.events("acked"))
        self.process = subprocess.Popen([sys.executable, saver.__file__, str(self.folder), str(os.stat(self.folder).st_dev), self.way, str(self.log), str(first)])
        self.world.callback(self.process.wait)
        self.world.callback(self.process.kill)
        wait_until(lambda: len(self.events("acked")) > acked, 60, "a saver's first step")

    def wait(self):
        self.process.wait(30)

    def check(self):
        """What is listed is whole, of what was looked at before a sample; all that was acknowledged is listed; the rest of what was
        begun is in no listing and has its name."""
        listed = {int(n) for n in os.listdir(self.folder) if n.isdigit()}
        acked, begun = set(self.events("acked")), set(self.events("begun"))
        assert acked <= listed, f"acknowledged and lost: {acked - listed}"
        assert listed <= begun, f"listed and never begun: {listed - begun}"
        known = sorted(listed & self.whole)
        for n in (listed - self.whole) | set(random.sample(known, min(SAMPLE, len(known)))):
            assert trees.files(self.folder / str(n)) == saver.expected(n, self.world.scratch), f"step {n} is not what was saved"
        self.whole |= listed
        for n in begun - listed:
            assert (self.folder / (f"{n}{saver.TEMP}" if self.way == "rename" else str(n))).is_dir(), f"what was written of {n} cannot be reached"


@pytest.mark.parametrize("way", ["marker", "rename"])
def test_client_and_daemon_killed_together_lose_no_acknowledged_step(world, mount, way):
    dice = random.Random(7)
    s = Saver(world, mount.path, way)
    for _ in range(KILLS):
        s.start()
        time.sleep(dice.uniform(0.05, 0.4))
        for victim in dice.sample([s.process.kill, mount.kill9], 2):
            victim()
        s.wait()
        mount.start()
        s.check()


@both_modes
@pytest.mark.parametrize("name", ["1000", "1000.orbax-checkpoint-tmp-7", "exp/a/step_5"])
@pytest.mark.parametrize("end", ["killed", "unmounted"])
def test_unfinished_step_has_its_name_in_the_next_mount_and_is_gone_on_with(mount, stage, commit, ckptfs, store, name, end):
    (mount / "exp/a").mkdir(parents=True)
    made = stage(name)
    kept = stage("999")
    commit(mount / "999")
    number = os.stat(mount / name).st_ino
    for _ in range(2):
        mount.umount() if end == "unmounted" else mount.kill9()
        [session] = ckptfs.json("sessions", store)
        assert (session["name"], session["state"]) == (name, "interrupted")
        mount.start()
        assert mount.listing() == ["999", "exp"] and mount.listing("exp/a") == [] and trees.files(mount / "999") == kept
        assert trees.files(mount / name) == made and os.stat(mount / name).st_ino == number
        assert os.listdir(mount / ".ckptfs/staged") == []
        [session] = ckptfs.json("sessions", store)
        assert (session["name"], session["state"], session["files"], session["bytes"]) == (name, "interrupted", len(made), sum(map(len, made.values())))
        assert session["changed_at"] >= session["began_at"] and session["open_writers"] == 0
    with pytest.raises(FileExistsError):
        os.mkdir(mount / name)
    os.makedirs(mount / name, exist_ok=True)
    trees.write(mount / name / "more", b"of the second attempt")
    trees.write(mount / name / "config.json", b"written over")
    os.unlink(mount / name / "empty")
    del made["empty"]
    commit(mount / name)
    for _ in range(2):
        assert trees.files(mount / name) == made | {"more": b"of the second attempt", "config.json": b"written over"}
        assert os.path.basename(name) in os.listdir((mount / name).parent) and ckptfs.json("sessions", store) == []
        mount.remount()


@both_modes
def test_unfinished_step_is_removed_and_saved_anew(mount, stage, commit, ckptfs, store):
    stage("1000")
    mount.kill9()
    mount.start()
    shutil.rmtree(mount / "1000")
    assert not (mount / "1000").exists() and ckptfs.json("sessions", store) == []
    again = stage("1000", seed="again")
    [session] = ckptfs.json("sessions", store)
    assert session["state"] == "live"
    commit(mount / "1000")
    for _ in range(2):
        assert mount.listing() == ["1000"] and trees.files(mount / "1000") == again
        mount.remount()


def test_unfinished_steps_of_one_name_in_several_folders_have_their_names(mount, stage):
    made = {}
    for folder in ("a", "b"):
        (mount / folder).mkdir()
        for name in ("step_1", "step_2"):
            made[folder, name] = stage(f"{folder}/{name}")
    mount.kill9()
    mount.start()
    assert {(folder, name): trees.files(mount / folder / name) for folder, name in made} == made


@pytest.fixture
def left(mount, stage):
    """A left-over session: its folder was removed, and its maker is gone. What it holds."""
    (mount / "run").mkdir()
    made = stage("run/step_7")
    mount.kill9()
    mount.start()
    (mount / "run").rmdir()
    return made


def test_step_in_a_folder_that_is_removed_is_left_over_and_can_be_reached(mount, left, ckptfs, store):
    for _ in range(2):
        assert mount.listing() == [] and trees.files(mount / ".ckptfs/staged/step_7") == left
        [session] = ckptfs.json("sessions", store)
        assert session["state"] == "left" and session["files"] == len(left)
        mount.remount()


def test_left_step_that_somebody_reads_is_there_until_it_is_dropped(mount, left, ckptfs, store):
    held = os.open(mount / ".ckptfs/staged/step_7", os.O_RDONLY)  # somebody copies it
    ckptfs("abort", "--yes", store, ckptfs.json("sessions", store)[0]["id"])
    assert os.listdir(mount / ".ckptfs/staged") == []
    os.close(held)


def test_left_step_cannot_be_changed_under_the_control_directory(mount, left):
    made = left
    left = mount / ".ckptfs/staged/step_7"
    for change in (lambda: trees.write(left / "config.json", b"x"), lambda: os.unlink(left / "config.json"), lambda: os.mkdir(left / "d"),
                   lambda: os.rename(left, mount / "2000"), lambda: trees.write(left / ".finalize", b"")):
        with pytest.raises(OSError):
            change()
    assert trees.files(left) == made


@pytest.mark.parametrize("mounted", [True, False])
def test_unfinished_session_can_be_dropped_by_its_verb(mount, stage, ckptfs, store, mounted):
    stage("1000")
    mount.kill9()
    if mounted:
        mount.start()
    ckptfs("abort", store, "1000", "--yes")
    if not mounted:
        mount.start()
    assert not (mount / "1000").exists()
    assert ckptfs.json("sessions", store) == [] and os.listdir(mount / ".ckptfs/staged") == []
    wait_until(lambda: os.listdir(store / "sessions") == [], what="the removal of the session's files")


def test_clients_of_a_dead_daemon_get_an_error_and_no_answer_is_made_up(mount, stage, agent):
    stage("1000")
    a = agent()
    a.run("fd = os.open(step + '/.finalize', os.O_CREAT | os.O_WRONLY); f = os.open(step + '/f', os.O_CREAT | os.O_WRONLY)", step=str(mount / "1000"))
    mount.kill9()
    assert a.errno_of("os.close(fd)") in ("ENOTCONN", "ECONNABORTED")
    assert a.errno_of("os.stat(step)") in ("ENOTCONN", "ECONNABORTED", "ENOENT")
    mount.start()
    assert mount.listing() == []


def test_descriptor_of_a_dead_mount_cannot_change_a_step_that_was_committed_since(mount, stage, agent, commit):
    """In passthrough an old descriptor still reaches its backing file after the daemon's death."""
    stage("1000")
    a = agent()
    a.run("fd = os.open(step + '/f', os.O_CREAT | os.O_RDWR); os.write(fd, b'good')", step=str(mount / "1000"))
    mount.kill9()
    mount.start()
    with pytest.raises(OSError) as e:
        commit(mount / "1000")
    assert e.value.errno == errno.EBUSY, "the old descriptor would write to what was committed"
    shutil.rmtree(mount / "1000")
    made = stage("1000", seed="again")
    commit(mount / "1000")
    a.errno_of("os.pwrite(fd, b'EVIL', 0)")
    assert trees.files(mount / "1000") == made


def other_index(world, scratch):
    """The index of another store with a step of the same name and other bytes."""
    other = Mount.new(world, scratch / "other-store", path=scratch / "other-mnt")
    (other / "1").mkdir()
    trees.fill(other / "1", seed="other")
    trees.write(other / "1/.finalize", b"")
    other.umount()
    return scratch / "other-store/index"


def flip(path, where):
    data = bytearray(path.read_bytes())
    for at in range(where, len(data), 97):
        data[at] ^= 0x5a
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["none", "removed", "emptied", "cut", "garbage", "bytes flipped", "meta pages flipped", "another store's",
                                    "stale", "of the future", "a file", "unreadable pages"])
def test_index_can_be_damaged_in_any_way_and_nothing_changes(world, mount, stage, commit, ckptfs, store, scratch, damage):
    made = {}
    for n in range(6):
        made[str(n)] = stage(str(n), files=5)
        commit(mount / str(n))
        if n == 2:
            mount.umount()
            shutil.copytree(store / "index", scratch / "stale")
            mount.start()
    (mount / "6").mkdir()
    made["6"] = {f"{i:04}": b"%d" % i for i in range(1500)}  # enough for a manifest of its own
    for name, data in made["6"].items():
        trees.write(mount / "6" / name, data)
    commit(mount / "6", b'{"metrics": {"loss": 1}}')
    before = ckptfs.json("ls", store)
    mount.umount()

    index = store / "index"
    data = next(p for p in index.iterdir() if p.name.startswith("data"))
    if damage == "removed":
        shutil.rmtree(index)
    elif damage == "emptied":
        data.write_bytes(b"")
    elif damage == "cut":
        os.truncate(data, data.stat().st_size // 2 + 100)
    elif damage == "garbage":
        data.write_bytes(random.Random(1).randbytes(data.stat().st_size))
    elif damage == "bytes flipped":
        flip(data, 8192)
    elif damage == "meta pages flipped":
        flip(data, 0)
    elif damage in ("another store's", "stale"):
        source = scratch / "stale" if damage == "stale" else other_index(world, scratch)
        shutil.rmtree(index)
        shutil.copytree(source, index)
    elif damage == "of the future":  # an index that knows a step which the store does not have
        shutil.copytree(index, scratch / "future")
        ckptfs("rm", "--now", "--yes", store, "3")
        shutil.rmtree(index)
        shutil.copytree(scratch / "future", index)
        made.pop("3")
        before = [s for s in before if s["name"] != "3"]
    elif damage == "a file":
        shutil.rmtree(index)
        index.write_bytes(b"not a directory")
    elif damage == "unreadable pages":
        content = bytearray(data.read_bytes())
        for page in range(2, len(content) // 4096, 2):
            content[page * 4096 + 64:page * 4096 + 4096] = bytes(4032)
        data.write_bytes(content)

    for _ in range(2):
        began = time.monotonic()
        mount.start()
        assert time.monotonic() - began < 5
        assert mount.listing() == sorted(made)
        assert {n: trees.files(mount / n) for n in mount.listing()} == made
        assert ckptfs.json("ls", store) == before
        mount.umount()
    assert ckptfs.json("ls", store) == before


def test_index_removed_under_a_living_mount_does_no_harm(mount, stage, commit, store):
    first = stage("1")
    commit(mount / "1")
    shutil.rmtree(store / "index")
    second = stage("2")
    commit(mount / "2")
    for _ in range(2):
        assert {n: trees.files(mount / n) for n in mount.listing()} == {"1": first, "2": second}
        mount.remount()
