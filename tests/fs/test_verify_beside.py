"""`ckptfs verify` beside a mount that goes on meanwhile: what is moved or removed while it reads is no damage."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from support import trees
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(120)

MB = 1 << 20
LARGE = 1 << 30


@pytest.fixture
def options():
    return ["seal=no", "trash=0"]  # a step has the versions that the test makes, and of older ones the packs go at once


@pytest.fixture
def frozen(mount, store, commit, ckptfs):
    """A cooled step whose frozen layers are in a pack of which nobody needs the rest; that pack."""
    made = {"frozen": os.urandom(3 * MB), "config": b"{}"}
    for name in ("1000", "2000"):
        made["own"] = os.urandom(8 * MB)
        (mount / name).mkdir()
        for path, data in made.items():
            trees.write(mount / name / path, data)
        commit(mount / name)
        ckptfs("cool", store, name)
    ckptfs("rm", "--now", "--yes", store, "1000")
    ckptfs("verify", store, "--read-data")
    return max((store / "packs").iterdir(), key=lambda p: p.stat().st_size)


def add_large(mount, name):
    """A raw file that takes a while to read and nothing on the disk."""
    with open(mount / "2000" / name, "wb") as f:
        f.truncate(LARGE)


def has_open(process, name):
    """By the name, or by the bytes: what was added to a step has a raw name of its own."""
    for fd in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.path.basename(os.readlink(fd)) == name or os.stat(fd).st_size == LARGE:
                return True
    return False


def state(process):
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def stopped_at(command, name):
    """The process, stopped while it has that file open; None: it was through before."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with contextlib.suppress(FileNotFoundError, PermissionError):  # it has ended
        while process.poll() is None and not has_open(process, name):
            pass
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: state(process) in "TZ", 10)
        if has_open(process, name):
            return process
    process.kill()
    process.communicate()
    return None


@contextlib.contextmanager
def verify_stopped_at(ckptfs, store, name):
    """Stops it while it reads that file of 2000; at the end it goes on, and its answer is in the dictionary."""
    answer, process = {}, None
    for _ in range(20):  # who does not get a processor may see it too late
        process = process or stopped_at([ckptfs.path, "verify", store, "--read-data", "--json"], name)
    assert process
    try:
        yield answer
        process.send_signal(signal.SIGCONT)
        answer.update(json.loads(process.communicate(timeout=60)[0]))
    finally:
        process.kill()
        process.wait()


def repack(ckptfs, store):
    ckptfs("gc", store, "--grace", "0", "--force")


def repack_and_warm(ckptfs, store):
    repack(ckptfs, store)
    ckptfs("warm", store, "2000")


def repack_and_delete(ckptfs, store):
    repack(ckptfs, store)
    ckptfs("rm", store, "2000")


def delete_for_good(ckptfs, store):
    ckptfs("rm", "--now", "--yes", store, "2000")
    ckptfs("gc", store, "--grace", "0", "--force")


# The packed files come after the large one, or before it: then the pack itself is what is looked at after it went.
@pytest.mark.parametrize("large", ["a", "z"], ids=["before the packed files", "after them"])
@pytest.mark.parametrize("act", [repack, repack_and_warm, repack_and_delete, delete_for_good])
def test_what_moves_while_verify_reads_is_no_damage(mount, store, ckptfs, frozen, act, large):
    add_large(mount, large)
    with verify_stopped_at(ckptfs, store, large) as answer:
        act(ckptfs, store)
        assert not frozen.exists()
    assert answer["bad"] == [] and answer["steps"] == 1
    assert mount.errors() == []


def test_a_rename_after_it_was_repacked_is_no_damage(mount, store, ckptfs, frozen):
    add_large(mount, "a")
    with verify_stopped_at(ckptfs, store, "a") as answer:
        repack(ckptfs, store)
        os.rename(mount / "2000", mount / "2500")
        assert not frozen.exists()
    assert answer["bad"] == []


def test_damage_of_what_moved_while_verify_read_is_told(mount, store, ckptfs, frozen):
    before = set((store / "packs").iterdir())
    add_large(mount, "a")
    with verify_stopped_at(ckptfs, store, "a") as answer:
        repack(ckptfs, store)
        [pack] = set((store / "packs").iterdir()) - before
        pack.unlink()
    assert {b["path"] for b in answer["bad"]} == {"config", "frozen"}
    assert all(b["step"] == "2000" and pack.name in b["problem"] and "is missing" in b["problem"] for b in answer["bad"])
