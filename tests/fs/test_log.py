"""`ckptfs log`: each act of a user has its line, newest first, with the program and the user that did it."""

import json
import os
import subprocess
import time
from datetime import datetime, timedelta, timezone

import pytest

from support import trees
from support.fixtures import needs_root

pytestmark = pytest.mark.timeout(90)

NAME = """
import ctypes
ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
"""
SAVE = """
os.mkdir(path)
open(path + '/a', 'w').close()
open(path + '/.finalize', 'w').close()
"""


def comm():
    with open("/proc/self/comm") as f:
        return f.read().rstrip("\n")


def acts(ckptfs, *words):
    """[(operation, step)], newest first."""
    return [(row["operation"], row["step"]) for row in ckptfs.json("log", *words)]


@pytest.fixture
def kept(mount, stage, commit, ckptfs):
    """A store in which something of each kind has happened; what that was, newest first, with the program."""
    mount.remount()
    me = comm()
    for name in ("1000", "2000"):
        stage(name)
        commit(mount / name)
    trees.write(mount / "1000/added", b"added")
    mount.remount()  # a version is due by then
    ckptfs("pin", mount.path, "1000")
    ckptfs("unpin", mount.path, "1000")
    subprocess.run(["mv", mount / "1000", mount / "1001"], check=True)
    subprocess.run(["rm", "-r", mount / "2000"], check=True)
    ckptfs("undelete", mount.path, "2000")
    ckptfs("restore", mount.path, "1001@1")
    subprocess.run(["rm", "-r", mount / "2000"], check=True)
    ckptfs("trash", "empty", mount.path, "--yes")
    (mount.store.parent / "policy.json").write_text('{"preset": "eformer"}')
    ckptfs("policy", "set", mount.path, mount.store.parent / "policy.json")
    return [("policy", None, "ckptfs"), ("expire", "2000", "ckptfs"), ("delete", "2000", "rm"), ("restore", "1001", "ckptfs"),
            ("undelete", "2000", "ckptfs"), ("delete", "2000", "rm"), ("rename", "1001", "mv"), ("unpin", "1000", "ckptfs"),
            ("pin", "1000", "ckptfs"), ("edit", "1000", me), ("commit", "2000", me), ("commit", "1000", me)]


def test_each_act_has_its_line(kept, mount, store, ckptfs):
    def check(*words):
        rows = ckptfs.json("log", *words)
        assert [(row["operation"], row["step"], row["by"]["program"]) for row in rows] == kept
        assert all(row["by"]["uid"] == os.geteuid() and row["by"]["host"] == os.uname().nodename for row in rows)
        assert sorted((row["seq"] for row in rows), reverse=True) == [row["seq"] for row in rows]
        assert [row["from"] for row in rows if "from" in row] == ["1000"]
        assert rows[-1]["event"] == "marker" and rows[-1]["version"] == 1 and rows[-1]["files"] and rows[-1]["bytes"]
        assert rows[-1]["by"]["node"] == json.loads((store / "store.json").read_text())["node"]
        lines = ckptfs("log", *words).stdout.splitlines()
        assert lines[0].split() == ["WHEN", "ACT", "STEP", "VERSION", "FILES", "SIZE", "PROGRAM", "USER"]
        assert [line.split()[2] for line in lines[1:]] == [act for act, _, _ in kept]
        assert "1000 -> 1001" in lines[7] and lines[7].split()[-2] == "mv"
        return rows
    mounted = check(mount.path)
    assert check(store) == mounted
    mount.umount()
    assert check(store) == mounted
    mount.start()
    assert check(mount.path) == mounted


def test_a_step_with_its_former_names_and_in_the_trash(kept, mount, ckptfs):
    want = [(act, step) for act, step, _ in kept if step in ("1000", "1001")]
    assert acts(ckptfs, mount.path, "1001") == want
    assert acts(ckptfs, str(mount / "1001")) == want
    # No step has these names any more.
    assert acts(ckptfs, mount.path, "1000") == [row for row in want if row != ("restore", "1001")]
    assert acts(ckptfs, mount.path, "2000") == [(act, step) for act, step, _ in kept if step == "2000"]
    subprocess.run(["rm", "-r", mount / "1001"], check=True)
    assert acts(ckptfs, mount.path, "trash/1001") == [("delete", "1001"), *want]
    for name in ("9", "trash/9", "1001/added"):
        said = ckptfs("log", mount.path, name, check=False)
        assert said.returncode in (1, 2) and said.stderr.startswith(f"ckptfs: {name}: ") and not said.stdout, said


def test_a_step_of_a_folder(mount, ckptfs):
    (mount / "checkpoints").mkdir()
    (mount / "checkpoints/7").mkdir()
    trees.write(mount / "checkpoints/7/a", b"a")
    trees.write(mount / "checkpoints/7/.finalize", b"")
    subprocess.run(["mv", mount / "checkpoints/7", mount / "checkpoints/8"], check=True)
    want = [("rename", "checkpoints/8"), ("commit", "checkpoints/7")]
    assert acts(ckptfs, mount.path) == acts(ckptfs, mount.path, "checkpoints/8") == acts(ckptfs, mount.path, "checkpoints/7") == want


def test_the_newest_and_those_since(kept, mount, ckptfs):
    everything = ckptfs.json("log", mount.path)
    for count in (1, 3, len(kept), 1000):
        assert ckptfs.json("log", mount.path, "-n", str(count)) == everything[:count]
    assert ckptfs.json("log", mount.path, "1001", "-n", "2") == ckptfs.json("log", mount.path, "1001")[:2]
    assert ckptfs.json("log", mount.path, "--since", "1h") == everything
    assert ckptfs.json("log", mount.path, "--since", everything[4]["at"]) == everything[:5]
    local = datetime.now() - timedelta(hours=1)
    assert ckptfs.json("log", mount.path, "--since", local.isoformat(" ", "seconds")) == everything
    assert ckptfs.json("log", mount.path, "--since", (datetime.now(timezone.utc) + timedelta(hours=1)).isoformat()) == []
    for words in (["-n", "0"], ["-n", "x"], ["--since", "yesterday"], ["1001", "2000"]):
        said = ckptfs("log", mount.path, *words, check=False)
        assert said.returncode == 2 and not said.stdout, words


def test_an_empty_store(mount, ckptfs):
    assert ckptfs.json("log", mount.path) == []
    said = ckptfs("log", mount.path)
    assert said.stdout == said.stderr == ""


def test_what_was_trimmed_is_said(kept, mount, store, ckptfs):
    mount.umount()
    for _ in range(3):
        ckptfs("pin", store, "1001")
        ckptfs("unpin", store, "1001")
        ckptfs("doctor", "--repair", store, check=False)  # puts a snapshot
    mount.start()
    assert not (store / "log/0000000000000005").exists(), "nothing was trimmed"
    said = ckptfs("log", "--json", mount.path)
    assert said.stderr.count("\n") == 1 and "complete from" in said.stderr
    rows = json.loads(said.stdout)
    assert [row["operation"] for row in rows[:3]] == ["unpin", "pin", "unpin"]
    assert [(row["operation"], row["step"]) for row in rows if row["event"]] == [("restore", "1001"), ("edit", "1000"), ("commit", "1000")]
    assert ckptfs("log", mount.path, "-n", "2").stderr == ckptfs("log", "-q", mount.path).stderr == ""


@pytest.mark.parametrize("number", [1, 12])
def test_a_damaged_entry_is_said_and_all_else_is_shown(kept, mount, store, ckptfs, number):
    mount.umount()
    victim = store / f"log/{number:016x}"
    data = bytearray(victim.read_bytes())
    data[200] ^= 1
    victim.chmod(0o600)
    victim.write_bytes(data)
    want = [act for act, _, _ in kept]
    del want[len(want) - number]
    if number == 1:  # what the step was before it is not known then
        want[want.index("unpin")] = "flags"
    said = ckptfs("log", "--json", store, check=False)
    assert said.returncode == 1 and f"log/{number:016x}" in said.stderr
    assert [row["operation"] for row in json.loads(said.stdout)] == want
    said = ckptfs("log", store, check=False)
    assert said.returncode == 1 and len(said.stdout.splitlines()) == len(kept)


@needs_root
@pytest.mark.parametrize("options", ["allow_other"], indirect=True)
def test_another_user_and_a_hostile_name(mount, agent, ckptfs):
    os.chmod(mount.path, 0o777)
    other = agent(uid=4003)
    other.run(NAME, name=b"\x1b[31m\nx\xe2\x80\xae")
    other.run(SAVE, path=str(mount / "1"))
    [row] = ckptfs.json("log", mount.path)
    assert (row["by"]["program"], row["by"]["uid"], row["by"]["user"]) == ("?[31m?x???", 4003, None)
    line = ckptfs("log", mount.path).stdout.splitlines()[1]
    assert line.split()[-2:] == ["?[31m?x???", "4003"]


def test_what_the_mount_does_to_bytes_is_shown_if_asked_for(mount, stage, commit, ckptfs):
    stage("1000")
    commit(mount / "1000")
    ckptfs("seal", mount.path)
    assert acts(ckptfs, mount.path) == [("commit", "1000")]
    assert acts(ckptfs, mount.path, "--all") == [("seal", "1000"), ("commit", "1000")]


def test_a_mount_goes_on_meanwhile(mount, stage, commit, ckptfs, world):
    """Each answer has all that was done before, while entries come and go."""
    stage("0")
    commit(mount / "0")
    until, done = time.monotonic() + 5, 0
    while time.monotonic() < until and done < 40:
        subprocess.run(["mv", mount / str(done), mount / str(done + 1)], check=True)
        done += 1
        said = ckptfs("log", "--json", mount.path)
        assert said.stderr == ""
        assert [row["step"] for row in json.loads(said.stdout)] == [str(n) for n in range(done, -1, -1)]
