"""Removing through the mount from a committed step: single files, which is an edit; and all of it, as rm -r and shutil.rmtree do, which is one act or none."""

import concurrent.futures
import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from support import trees
from support.fixtures import FULL, all_modes, both_modes, needs_root
from support.mounting import Mount, wait_until
from support.syncs import BadSyncs

pytestmark = pytest.mark.timeout(60)

REMOVERS = {"rm": lambda path: subprocess.run(["rm", "-r", path], check=True), "rmtree": shutil.rmtree}


@pytest.fixture
def step(mount, stage, commit):
    """A committed step, 1000: (path, {path in it: bytes})."""
    made = stage("1000")
    commit(mount / "1000")
    return mount / "1000", made


def versions(ckptfs, store, name="1000"):
    return [v["event"] for v in ckptfs.json("info", store, name)["versions"]]


def refused(call, *errors):
    with pytest.raises(OSError) as e:
        call()
    assert e.value.errno in errors, e.value


@all_modes
@pytest.mark.parametrize("remover", REMOVERS)
@pytest.mark.parametrize("remounted", [False, True], ids=["just committed", "read from the store"])
def test_removed_step_is_deleted_in_one_act_and_can_be_had_back(mount, step, ckptfs, store, remover, remounted):
    path, made = step
    if remounted:
        mount.remount()
    REMOVERS[remover](path)
    for _ in range(2):
        assert mount.listing() == [] and not path.exists()
        assert ckptfs.json("ls", store) == []
        assert trees.files(mount / ".ckptfs/trash/1000") == made, "what went one by one is in the trash as a whole"
        mount.remount()
    ckptfs("undelete", store, "1000")
    assert trees.files(path) == made
    REMOVERS[remover](path)
    assert mount.listing() == []


def test_name_of_a_removed_step_can_be_given_again(mount, step, stage, commit):
    path, _ = step
    for n in range(3):
        shutil.rmtree(path)
        made = stage("1000", seed=str(n))
        commit(path)
        assert trees.files(path) == made
    mount.remount()
    assert trees.files(path) == made and len(os.listdir(mount / ".ckptfs/trash")) == 3


def test_step_in_a_folder_is_removed_and_the_folder_after_it(mount, stage, commit, ckptfs, store):
    (mount / "run").mkdir()
    stage("run/step_1")
    commit(mount / "run/step_1")
    refused(lambda: os.rmdir(mount / "run"), errno.ENOTEMPTY)
    shutil.rmtree(mount / "run")
    assert mount.listing() == [] and ckptfs.json("ls", store) == []


@both_modes
def test_half_removed_step_is_in_no_listing_and_reachable_by_its_name(mount, step):
    """As rm -r does it, which has the step's own directory open."""
    path, made = step
    top = os.open(path, os.O_RDONLY)
    os.unlink(path / "config.json")
    refused(lambda: os.unlink(path / "config.json"), errno.ENOENT)
    assert mount.listing() == []
    left = {p: data for p, data in made.items() if p != "config.json"}
    assert trees.files(path) == left
    refused(lambda: os.rmdir(path), errno.ENOTEMPTY)
    refused(lambda: os.rmdir(path / "params"), errno.ENOTEMPTY)
    refused(lambda: os.unlink(path / "params"), errno.EISDIR)
    refused(lambda: os.rmdir(path / "empty"), errno.ENOTDIR)
    assert trees.files(path) == left
    os.close(top)


# --- Single files --------------------------------------------------------------------------------------------------------------


@both_modes
def test_removed_file_stays_gone_and_the_step_listed(mount, step, ckptfs, store):
    path, made = step
    number = os.lstat(path / "empty").st_ino
    links = path.stat().st_nlink
    os.unlink(path / "config.json")
    shutil.rmtree(path / "params/layer_0")
    for p in [p for p in made if p.startswith("params/layer_0/") or p == "config.json"]:
        del made[p]
    assert mount.listing() == ["1000"] and trees.files(path) == made
    wait_until(lambda: len(versions(ckptfs, store)) == 2, what="the edit")
    for _ in range(2):
        assert mount.listing() == ["1000"] and trees.files(path) == made
        assert "layer_0" not in os.listdir(path / "params") and (path / "params").stat().st_nlink == 2 + len(os.listdir(path / "params"))
        assert path.stat().st_nlink == links and os.lstat(path / "empty").st_ino == number
        assert versions(ckptfs, store) == ["marker", "amend"], "all marks are one version"
        mount.remount()
    assert mount.errors() == [] and ckptfs.json("verify", store)["bad"] == []


def test_file_that_is_removed_a_minute_after_another_is_one_more_edit(mount, step, ckptfs, store):
    """As by a callback, which does not look at the step first. The minute is left out: the first mark is an edit by then."""
    path, made = step
    for n, name in enumerate(["config.json", "empty"], 2):
        os.unlink(path / name)
        del made[name]
        assert mount.listing() == ["1000"]
        wait_until(lambda n=n: len(versions(ckptfs, store)) == n, what="the edit")
    assert trees.files(path) == made and mount.listing() == ["1000"]


def test_added_file_and_removed_one_at_once(mount, step, ckptfs, store):
    path, made = step
    os.unlink(path / "config.json")
    trees.write(path / "eval.json", b"{}")
    assert mount.listing() == ["1000"]
    del made["config.json"]
    made["eval.json"] = b"{}"
    assert trees.files(path) == made
    wait_until(lambda: len(versions(ckptfs, store)) == 3, what="the edit")
    for _ in range(2):
        assert mount.listing() == ["1000"] and trees.files(path) == made
        mount.remount()


def test_removed_file_is_in_the_version_that_a_deletion_soon_after_means(mount, step, ckptfs, store):
    path, made = step
    os.unlink(path / "config.json")
    wait_until(lambda: len(versions(ckptfs, store)) == 2, what="the edit")
    shutil.rmtree(path)
    for _ in range(2):
        assert mount.listing() == [] and trees.files(mount / ".ckptfs/trash/1000") == made
        mount.remount()
    ckptfs("undelete", store, "1000")
    assert trees.files(path) == made and mount.listing() == ["1000"]


ENDS = {"killed": (-9, False), "interrupted": (-2, False), "failed": (1, False), "ended": (0, True)}


@pytest.mark.parametrize("whole", [False, True], ids=["a file", "rm -r"])
@pytest.mark.parametrize("end", ENDS)
def test_marks_end_with_their_process(mount, step, ckptfs, store, agent, end, whole):
    path, made = step
    status, stays = ENDS[end]
    a = agent()
    if whole:
        a.run("top = os.open(path, os.O_RDONLY)", path=str(path))
    a.run("os.unlink(path + '/config.json')", path=str(path))
    assert mount.listing() == ([] if whole else ["1000"]) and not (path / "config.json").exists()
    a.run("import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)")
    a.start("os.kill(os.getpid(), -status) if status < 0 else os._exit(status)", status=status)
    wait_until(lambda: (path / "config.json").exists() or len(versions(ckptfs, store)) == 2, what="the end of the marks")
    wait_until(lambda: mount.listing() == ["1000"], what="the step in the listing")
    if stays:
        del made["config.json"]
    else:
        wait_until(mount.errors, what="a line in errors")
        assert "what it removed is restored" in mount.errors()[0]
    for _ in range(2):
        assert mount.listing() == ["1000"] and trees.files(path) == made
        assert len(versions(ckptfs, store)) == 1 + stays
        mount.remount()


MOMENTS = range(0, 12)

# As rm -r does it, until a signal comes after so many calls. It prints when.
SUICIDAL = """
import os, shutil, signal, sys, time
left = int(sys.argv[2])
signal.signal(signal.SIGINT, signal.SIG_DFL)
def counted(call):
    def act(*args, **kwargs):
        global left
        if not left:
            print(time.monotonic(), flush=True)
            os.kill(os.getpid(), int(sys.argv[3]))
        left -= 1
        return call(*args, **kwargs)
    return act
os.unlink, os.rmdir = counted(os.unlink), counted(os.rmdir)
shutil.rmtree(sys.argv[1])
"""


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGINT])
def test_rm_that_is_interrupted_at_any_moment_has_removed_all_or_nothing(mount, stage, commit, sig):
    """A process that lists all the time is the judge: what is listed is whole."""
    made, restored = {}, {}
    for n in MOMENTS:
        made[str(n)] = stage(str(n), seed=n)
        commit(mount / str(n))
    with judge(mount, made) as wrong:
        for n in MOMENTS:
            remover = subprocess.run([sys.executable, "-c", SUICIDAL, str(mount / str(n)), str(n), str(sig)], stdout=subprocess.PIPE, check=False)
            restored[str(n)] = (float(remover.stdout or "inf"), time.monotonic())
        wait_until(lambda: all((mount / str(n) / "config.json").exists() or not (mount / str(n)).exists() for n in MOMENTS), timeout=20, what="the end of the marks")
        wait_until(lambda: {n for n in made if (mount / n).exists()} == set(mount.listing()), timeout=20, what="all that is there in the listing")
        assert mount.listing() != []
        for name in mount.listing():
            assert trees.files(mount / name) == made[name]
    # A step that was removed and restored between the two listings of one look was rightly not there.
    assert [(name, missing) for name, missing, begin, end in wrong if not (begin < restored[name][1] and restored[name][0] < end)] == []


@pytest.mark.skipif(not FULL, reason="takes minutes")
@pytest.mark.timeout(400)
def test_rm_that_is_stopped_for_a_minute_has_removed_nothing_and_one_that_idles_has_edited(mount, stage, commit, agent):
    made = {name: stage(name) for name in ("1", "2")}
    agents = {}
    for name in made:
        commit(mount / name)
        agents[name] = agent()
        agents[name].run("os.listdir(path); os.unlink(path + '/config.json')", path=str(mount / name))
    os.kill(agents["1"].pid, signal.SIGSTOP)
    time.sleep(30)
    assert mount.listing() == []
    wait_until(lambda: mount.listing() == ["1", "2"], timeout=90, what="both in the listing")
    os.kill(agents["1"].pid, signal.SIGCONT)
    del made["2"]["config.json"]
    for _ in range(2):
        assert {name: trees.files(mount / name) for name in made} == made
        mount.remount()


@contextlib.contextmanager
def judge(mount, made):
    """Looks all the time: a step that is listed before and after the look has all its files. What it saw otherwise, with the times
    of the two listings."""
    wrong, stop = [], threading.Event()

    def watch():
        while not stop.is_set():
            begin = time.monotonic()
            for name in mount.listing():
                missing = [p for p in made[name] if not (mount / name / p).exists()]
                if missing and name in mount.listing():
                    wrong.append((name, missing, begin, time.monotonic()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield wrong
    finally:
        stop.set()
        watcher.join()


@pytest.mark.parametrize("act", ["os.rename(path + '/config.json', path + '/old.json')", "open(path + '/new.json', 'w').close()"])
def test_who_lists_a_step_changes_it_and_then_removes_a_file_is_no_rm(mount, step, agent, act):
    """As Megatron does it, which writes the metadata of a step anew."""
    path, made = step
    a, file = agent(), next(iter(made))
    a.run(f"os.listdir(path); {act}; os.unlink(path + '/{file}')", path=str(path))
    assert "1000" in mount.listing() and not (path / file).exists()
    a.run("import shutil; shutil.rmtree(path)", path=str(path))
    assert not path.exists()


def test_two_processes_and_many_threads_remove_one_step(mount, stage, commit, ckptfs, store):
    made = {str(n): stage(str(n), files=30) for n in range(6)}
    for name in made:
        commit(mount / name)
    with judge(mount, made) as wrong:
        for name in ("0", "1", "2"):
            rms = [subprocess.Popen(["rm", "-rf", str(mount / name)], stderr=subprocess.DEVNULL) for _ in range(2)]
            for rm in rms:
                rm.wait()
            wait_until(lambda name=name: not (mount / name).exists(), what=f"the end of {name}")
        for name in ("3", "4", "5"):
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                for _ in pool.map(lambda _, name=name: shutil.rmtree(mount / name, ignore_errors=True), range(8)):
                    pass
            assert not (mount / name).exists()
    assert wrong == [] and mount.listing() == []
    for name, files in made.items():
        ckptfs("undelete", store, name)
        assert trees.files(mount / name) == files


@pytest.mark.parametrize("end", ["killed", "unmounted"])
@pytest.mark.parametrize("whole", [False, True], ids=["a file", "rm -r"])
def test_restart_drops_marks_and_an_orderly_end_makes_an_edit_of_single_files(mount, step, end, whole):
    path, made = step
    top = os.open(path, os.O_RDONLY) if whole else None
    os.unlink(path / "config.json")
    shutil.rmtree(path / "params")
    if whole:
        os.close(top)
    if end == "killed":
        mount.kill9()
        mount.start()
    else:
        mount.remount()
        if not whole:
            made = {p: data for p, data in made.items() if p != "config.json" and not p.startswith("params/")}
    assert mount.listing() == ["1000"] and trees.files(path) == made


@pytest.mark.parametrize("options", ["amend=deny"], indirect=True)
def test_committed_files_cannot_be_changed_while_some_are_removed(mount, step):
    path, made = step
    refused(lambda: os.unlink(path / "config.json"), errno.EROFS)
    top = os.open(path, os.O_RDONLY)
    os.unlink(path / "config.json")
    for change in (lambda: trees.write(path / "config.json", b"x"), lambda: trees.write(path / "empty", b"x"), lambda: os.rename(path / "empty", path / "e"),
                   lambda: os.mkdir(path / "d"), lambda: os.chmod(path / "empty", 0o600), lambda: os.truncate(path / "params/layer_0/w0.bin", 0)):
        refused(change, errno.EROFS)
    refused(lambda: os.rename(path, mount / "3000"), errno.EBUSY)
    del made["config.json"]
    assert trees.files(path) == made
    os.close(top)


@both_modes
def test_late_file_can_be_written_over_when_another_was_removed(mount, step, commit):
    path, made = step
    trees.write(path / "late", b"late")
    assert trees.files(path) == made | {"late": b"late"}
    os.unlink(path / "config.json")
    trees.write(path / "late", b"again")
    del made["config.json"]
    for _ in range(2):
        assert trees.files(path) == made | {"late": b"again"}
        commit(path)
    assert mount.listing() == ["1000"] and mount.errors() == []
    mount.remount()
    assert trees.files(path) == made | {"late": b"again"}


@both_modes
def test_reader_of_a_step_that_is_removed_reads_on(mount, stage, commit):
    made = stage("1000", size=300_000)
    commit(mount / "1000")
    mount.remount()  # nothing of it is in the kernel's memory
    held = {path: open(mount / "1000" / path, "rb") for path in made}
    shutil.rmtree(mount / "1000")
    for path, f in held.items():
        assert f.read() == made[path]
        f.close()


def test_watcher_never_sees_a_listed_step_that_is_not_whole(mount, stage, commit):
    made, wrong, stop = {}, [], threading.Event()

    def watch():
        while not stop.is_set():
            for name in os.listdir(mount.path):
                seen = [p for p in made[name] if not (mount / name / p).exists()]
                if seen and name in os.listdir(mount.path):
                    wrong.append((name, seen))

    for n in range(20):
        made[str(n)] = stage(str(n))
        commit(mount / str(n))
    watcher = threading.Thread(target=watch)
    watcher.start()
    for n in range(20):
        shutil.rmtree(mount / str(n))
    stop.set()
    watcher.join()
    assert wrong == [] and mount.listing() == []


def test_deletion_that_the_disk_refuses_is_an_error_and_the_step_is_back(world, store, commit, agent):
    syncs = BadSyncs(world)
    m = Mount.new(world, store, prefix=syncs.prefix)
    (m / "1000").mkdir()
    made = trees.fill(m / "1000")
    commit(m / "1000")
    syncs.die()
    refused(lambda: shutil.rmtree(m / "1000"), errno.EIO)
    syncs.live()
    assert m.listing() == ["1000"] and trees.files(m / "1000") == made
    shutil.rmtree(m / "1000")
    assert m.listing() == []


@needs_root
def test_read_only_mount_removes_nothing(world, mount, step, store, scratch):
    path, made = step
    mount.umount()
    m = Mount.new(world, store, scratch / "ro", options=["ro"])
    refused(lambda: os.unlink(m / "1000/config.json"), errno.EROFS)
    refused(lambda: os.rmdir(m / "1000"), errno.EROFS)
    assert trees.files(m / "1000") == made
