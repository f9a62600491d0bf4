"""Older versions of a step: STEP@VERSION in the verbs, what keeps them, and `ckptfs restore`."""

import json
import os
import subprocess
import time

import pytest

from support import trees
from support.fixtures import both_modes
from support.mounting import wait_until

pytestmark = [pytest.mark.timeout(120), pytest.mark.parametrize("options", ["commit_quiet=1s"], indirect=True)]

ARRAY = b"\x93NUMPY\x01\x00" + b"weights!" * 40_000
FILES = {"config.json": b'{"lr": 1}\n', "sub/notes.txt": b"notes\n", "array.npy": ARRAY}
EDITED = FILES | {"config.json": b'{"lr": 2, "warmup": 100}\n'}


@pytest.fixture
def step(mount, commit):
    (mount / "1000").mkdir()
    for path, data in FILES.items():
        trees.put(mount / "1000" / path, data)
    commit(mount / "1000")
    return mount / "1000"


@pytest.fixture
def edit(step, ckptfs, store):
    """As an editor does: a new file is renamed over the old one."""
    def write(text, path="config.json"):
        was = ckptfs.json("info", store, "1000")["version"]
        new = step / "new"
        new.write_bytes(text)
        os.rename(new, step / path)
        wait_until(lambda: ckptfs.json("info", store, "1000")["version"] > was and (step / path).read_bytes() == text)
    return write


@pytest.fixture
def older(ckptfs, store, scratch):
    """What the verbs say of a version: {path: bytes}."""
    def get(version):
        to = scratch / f"got-{len(os.listdir(scratch))}"
        ckptfs("get", store, f"1000@{version}", to)
        return trees.files(to)
    return get


def cat(ckptfs, store, *words):
    return subprocess.run([str(ckptfs), "cat", str(store), *words], check=True, capture_output=True, timeout=60).stdout


@both_modes
def test_older_versions_are_read_wherever_their_bytes_are(mount, step, edit, older, ckptfs, store, mode):
    edit(EDITED["config.json"])
    top = ckptfs.json("info", store, "1000")["version"]

    def look():
        assert cat(ckptfs, store, "1000@1", "config.json") == FILES["config.json"]
        assert cat(ckptfs, store, "latest@1/config.json") == FILES["config.json"]
        assert cat(ckptfs, store, f"1000@{top}", "config.json") == EDITED["config.json"]
        assert older(1) == FILES and older(top) == EDITED
        assert trees.files(step) == EDITED
        rows = ckptfs.json("ls", store, "1000@1")
        assert {r["path"]: r["bytes"] for r in rows if r["type"] == "file"} == {p: len(d) for p, d in FILES.items()}
        assert ckptfs("cat", store, f"{step}@1/config.json").stdout == FILES["config.json"].decode()
        done = ckptfs("diff", store, "1000@1", "1000", check=False)
        assert done.returncode == 1 and done.stdout.splitlines() == ["~ config.json"]
        checked = ckptfs.json("verify", store, "--read-data", "1000@1")
        assert checked["bad"] == [] and checked["steps"] == 1 and checked["files"] == 3
        assert checked["bytes"] == sum(map(len, FILES.values()))

    look()
    ckptfs("seal", store, "1000")
    ckptfs("cool", store, "1000")
    assert not list(store.glob("sessions/*/array.npy"))
    look()
    ckptfs("gc", store, "--grace", "0s", "--force")
    look()
    mount.remount()
    look()
    time.sleep(5)  # edits that follow each other at once are one
    edit(b"x", "sub/notes.txt")
    assert older(1) == FILES and older(-1) == EDITED


def test_what_can_be_opened_is_listed_and_the_rest_is_refused(mount, step, edit, ckptfs, store):
    edit(EDITED["config.json"])
    info = ckptfs.json("info", store, "1000")
    assert info["versions"][0]["state"] == "old" and info["versions"][0]["expires_at"]
    assert info["versions"][-1]["state"] == "current" and info["versions"][-1]["expires_at"] is None
    one = ckptfs.json("info", store, "1000@1")
    assert (one["version"], one["state"], one["event"], one["name"]) == (1, "old", "marker", "1000")
    for word, why, hint in [("1000@99", "the step has no such version", "ckptfs info"), ("1000@-99", "the step has no such version", "ckptfs info"),
                            ("77@1", "no such step", "ckptfs ls")]:
        done = ckptfs("cat", store, f"{word}/config.json", check=False)
        assert done.returncode == 1 and why in done.stderr and hint in done.stderr, done.stderr
    done = ckptfs("rm", store, "1000@1", check=False)
    assert done.returncode == 1 and "a whole step is wanted" in done.stderr and "ckptfs restore" in done.stderr
    done = ckptfs("restore", store, "1000", check=False)
    assert done.returncode == 2 and "1000@-1" in done.stderr
    done = ckptfs("restore", store, "1000@1/config.json", check=False)
    assert done.returncode == 2


def test_an_exact_name_wins(step, edit, ckptfs, store, scratch):
    edit(EDITED["config.json"])
    trees.put(scratch / "other" / "config.json", b"exact\n")
    ckptfs("save", store, scratch / "other", "1000@1")
    assert cat(ckptfs, store, "1000@1", "config.json") == b"exact\n"
    assert cat(ckptfs, store, "1000@-1", "config.json") == FILES["config.json"]


@pytest.mark.parametrize("cooled", [False, True], ids=["raw", "cooled"])
@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "at rest"])
def test_restore(mount, step, edit, ckptfs, store, mounted, cooled):
    edit(EDITED["config.json"])
    (step / "added.txt").write_bytes(b"added\n")
    os.rename(step / "sub/notes.txt", step / "sub/renamed.txt")
    wait_until(lambda: set(trees.files(step)) == {"config.json", "added.txt", "sub/renamed.txt", "array.npy"})
    if cooled:
        ckptfs("seal", store, "1000")
        ckptfs("cool", store, "1000")
    changed = trees.files(step)
    was = ckptfs.json("info", store, "1000")["version"]
    with open(step / "config.json", "rb") as kept:
        if not mounted:
            kept.close()
            mount.umount()
        made = json.loads(ckptfs("restore", "--json", store, "1000@1").stdout)
        assert made["step"] == "1000" and made["version"] > was
        if mounted:
            assert kept.read() == EDITED["config.json"], "who has it open reads on"
    if not mounted:
        mount.start()
    for _ in range(2):
        assert trees.files(step) == FILES and sorted(os.listdir(step)) == ["array.npy", "config.json", "sub"]
        assert ckptfs.json("verify", store)["bad"] == []
        assert not (step / "added.txt").exists() and (step / "sub/notes.txt").stat().st_size == len(FILES["sub/notes.txt"])
        mount.remount()
    done = ckptfs("restore", store, "1000@1", check=False)
    assert done.returncode == 1 and "these files now" in done.stderr
    assert ckptfs("restore", store, "1000@-1").stdout.startswith("1000: has the files of version -1 again")
    assert trees.files(step) == changed


def test_verify_finds_what_an_older_version_lacks(step, edit, ckptfs, store):
    edit(EDITED["config.json"])
    [raw] = store.glob("sessions/*/config.json")
    os.unlink(raw)
    done = ckptfs("verify", store, "--json", "1000@1", check=False)
    assert done.returncode == 1
    assert [(b["step"], b["path"]) for b in json.loads(done.stdout)["bad"]] == [("1000@1", "config.json")]
    assert ckptfs.json("verify", store, "1000")["bad"] == []


def test_expired_versions_give_their_room_back(mount, step, edit, ckptfs, store):
    (step / "large.log").write_bytes(b"x" * (8 << 20))
    edit(b"y" * 10, "large.log")
    raws = [p for p in store.glob("sessions/*/*") if p.is_file() and p.stat().st_size == 8 << 20]
    assert len(raws) == 1
    mount.remount(["commit_quiet=1s", "trash=1s"])
    wait_until(lambda: not raws[0].exists(), 30, "the raw file of the older version to go")
    assert trees.files(step) == FILES | {"large.log": b"y" * 10}
    wait_until(lambda: "expired" in ckptfs("cat", store, "1000@1", "config.json", check=False).stderr)
    done = ckptfs("restore", store, "1000@1", check=False)
    assert done.returncode == 1 and "expired" in done.stderr
    assert {v["state"] for v in ckptfs.json("info", store, "1000")["versions"][:-1]} <= {"expired", "old"}
    assert ckptfs.json("verify", store)["bad"] == []
