"""du: what steps hold, and what they take on the disk."""

import json
import os
import re
import shutil

import pytest

from support import trees

pytestmark = pytest.mark.timeout(60)

FIELDS = {"logical_bytes", "stored_bytes", "raw_bytes", "packed_bytes", "deduplicated_bytes", "trash_bytes", "garbage_bytes", "staged_bytes", "codecs"}


def on_disk(folder):
    """The blocks of the files below, each inode once."""
    seen = {(st.st_dev, st.st_ino): st.st_blocks for p in folder.rglob("*") if not p.is_symlink() and p.is_file() for st in [p.stat()]}
    return 512 * sum(seen.values())


@pytest.fixture
def saved(mount, store, commit, ckptfs):
    """Steps 1 (hard links, a hole), 2, 3 in the trash, 4 staged: {name: its session's directory}."""
    sessions = {}
    for name in ("1", "2", "3", "4"):
        (mount / name).mkdir()
        trees.write(mount / name / "f", os.urandom(100_000))
        if name == "1":
            os.link(mount / "1/f", mount / "1/g")
            with open(mount / "1/hole", "wb") as f:
                f.truncate(50 << 20)
            os.symlink("f", mount / "1/link")
        if name != "4":
            commit(mount / name)
        [sessions[name]] = [p for p in (store / "sessions").iterdir() if p not in sessions.values()]
    os.sync()
    ckptfs("rm", store, "3")
    return sessions


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "at rest"])
def test_du_counts_each_block_once(mount, saved, store, ckptfs, mounted):
    if not mounted:
        mount.umount()
    answer = ckptfs.json("du", store)
    assert answer.keys() == FIELDS
    assert answer["logical_bytes"] == 100_000 + (50 << 20) + 100_000
    raw = on_disk(saved["1"]) + on_disk(saved["2"])
    assert answer["raw_bytes"] == answer["stored_bytes"] == raw < 1 << 20
    assert answer["trash_bytes"] == on_disk(saved["3"]) > 0 and answer["staged_bytes"] == on_disk(saved["4"]) > 0
    assert [answer[k] for k in ("packed_bytes", "deduplicated_bytes", "garbage_bytes", "codecs")] == [0, 0, 0, {}]
    text = ckptfs("du", store).stdout
    assert re.search(rf"^logical +\S+ +{answer['logical_bytes']} ", text, re.M) and re.search(rf"^staged +\S+ +{answer['staged_bytes']} ", text, re.M)


def test_du_of_steps_is_of_those_alone(mount, saved, store, ckptfs):
    for words, names in ((["1"], ["1"]), (["2", "2", "latest"], ["2"]), (["1", "2"], ["1", "2"]), (["trash/3"], ["3"]), (["1", "trash/3"], ["1", "3"])):
        answer = ckptfs.json("du", store, *words)
        assert answer["raw_bytes"] == sum(on_disk(saved[n]) for n in names), words
        assert answer["trash_bytes"] is None and answer["staged_bytes"] is None
    assert ckptfs.json("du", mount / "2")["logical_bytes"] == 100_000
    assert "staged" not in ckptfs("du", store, "2").stdout


def test_du_counts_what_older_versions_have(mount, saved, store, ckptfs):
    before = ckptfs.json("du", store)
    ckptfs("rm", mount / "2/f")
    after = ckptfs.json("du", store)
    assert after["logical_bytes"] == before["logical_bytes"] - 100_000 and after["raw_bytes"] == before["raw_bytes"]


def test_du_of_an_empty_store(mount, store, ckptfs):
    assert {k: v for k, v in ckptfs.json("du", store).items() if v} == {}


def test_du_says_what_is_not_there(mount, saved, store, ckptfs):
    mount.umount()
    shutil.rmtree(saved["1"])
    done = ckptfs("du", store, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[0] == "ckptfs: 1: some of it cannot be read: No such file or directory" and "verify" in done.stderr.splitlines()[1]
    for word, status in (("9", 1), ("4", 1), ("2/f", 2), ("trash/9", 1)):
        done = ckptfs("du", store, "2", word, check=False)
        assert done.returncode == status and len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "at rest"])
def test_du_calls_nothing_garbage_when_the_log_is_damaged(mount, saved, store, ckptfs, mounted):
    ckptfs("cool", store, "1")
    if not mounted:
        mount.umount()
    assert ckptfs.json("du", store)["garbage_bytes"] == 0 and "not known" not in ckptfs("du", store).stderr
    last = max((store / "log").iterdir())
    whole = last.read_bytes()
    last.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    done = ckptfs("du", store, "--json")
    answer = json.loads(done.stdout)
    assert answer["garbage_bytes"] is None and answer["packed_bytes"] == 0
    done = ckptfs("du", store)
    assert "not known" in done.stderr and "verify" in done.stderr and "garbage" not in done.stdout
    assert "not known" not in ckptfs("du", store, "2").stderr
