"""-o on_commit=PROGRAM: run after each commit, behind; whatever it does, the step is committed."""

import json
import os
import shutil
import subprocess
import time

import pytest

from support import trees
from support.fixtures import both_modes
from support.mounting import Mount, wait_until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def log(scratch):
    return scratch / "log"


@pytest.fixture
def program(scratch):
    """program("exit 1"): the path of a script of these lines, where $LOG is `log`."""
    def make(lines):
        path = scratch / "program"
        path.write_text(f"#!/bin/sh\nLOG={scratch}/log\n{lines}\n")
        path.chmod(0o755)
        return path
    return make


@pytest.fixture
def mounted(world, store, mode, program):
    """mounted("exit 1"): the store, mounted with such a program."""
    def make(lines):
        return Mount.new(world, store, mode=mode, options=[f"on_commit={program(lines)}"])
    return make


def save(mount, name, text=b""):
    (mount / name).mkdir(parents=True)
    trees.fill(mount / name, seed=name)
    trees.write(mount / name / ".finalize", text)


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


def test_it_is_told_the_metadata_that_a_shell_writes(mounted, log):
    mount = mounted('echo "$CKPT_STEP $CKPT_METADATA" >> $LOG')
    shells = [shell for shell in ("sh", "bash", "zsh") if shutil.which(shell)]
    for shell in shells:
        (mount / f"step_{len(shell)}").mkdir()
        trees.fill(mount / f"step_{len(shell)}")
        subprocess.run([shell, "-c", f"echo '{{\"metrics\":{{\"loss\":1.5}}}}' > {mount.path}/step_{len(shell)}/.finalize"], check=True)
    wait_until(lambda: len(lines_of(log)) == len(shells), 10)
    for shell, line in zip(shells, lines_of(log)):
        name, metadata = line.split(" ", 1)
        assert name == f"step_{len(shell)}" and json.loads(metadata)["metrics"] == {"loss": 1.5}


@both_modes
def test_it_is_run_after_each_commit_in_their_order(mounted, log, ckptfs, store, mode):
    before = os.umask(0o027)
    try:
        mount = mounted('echo "$CKPT_STEP $CKPT_PATH $(ls $CKPT_PATH | tr "\\n" ,) $(umask) $CKPT_METADATA" >> $LOG')
    finally:
        os.umask(before)
    save(mount, "1000")
    save(mount, "a/step_2", b'{"metrics":{"loss":0.5},"extras":{"say":"\'$(touch x)\' \\"b\\""}}')
    save(mount, "1001")
    trees.write(mount / "1000/more", b"an addition is no commit")
    ckptfs("pin", mount / "1000")
    ckptfs("wait", "--idle", "--timeout", "20s", store)
    said = [line.split(" ", 4) for line in lines_of(log)]
    assert [s[:2] for s in said] == [[name, str(mount / name)] for name in ("1000", "a/step_2", "1001")]
    assert all(s[2] in ("config.json,empty,first,params,", "config.json,empty,first,more,params,") and s[3] == "0027" for s in said)
    assert [json.loads(s[4]) for s in said] == [{}, {"metrics": {"loss": 0.5}, "extras": {"say": "'$(touch x)' \"b\""}}, {}]
    assert mount.errors() == [] and mount.status()["on_commit"] == 0


def test_its_failure_is_a_line_in_errors(mounted, scratch):
    mount = mounted('echo to nobody; printf "no space for \\377\\n\\n" >&2; exit 3')
    save(mount, "1000")
    [line] = wait_until(mount.errors, what="a line")
    assert "1000" in line and "exit status 3: no space for" in line and "the step is committed" in line
    (scratch / "program").unlink()
    save(mount, "1001")
    wait_until(lambda: len(mount.errors()) == 2, what="another line")
    assert "1001" in mount.errors()[1] and "ENOENT" in mount.errors()[1]
    assert mount.listing() == ["1000", "1001"]


def test_no_save_waits_for_it_and_an_end_not_for_long(mounted, log):
    mount = mounted('echo begun >> $LOG; sleep 30; echo ended >> $LOG')
    began = time.monotonic()
    for name in ("1000", "1001", "1002"):
        save(mount, name)
    assert time.monotonic() - began < 10 and mount.listing() == ["1000", "1001", "1002"]
    wait_until(lambda: lines_of(log) == ["begun"], what="its start")
    assert mount.status()["on_commit"] == 3
    began = time.monotonic()
    mount.umount()
    assert time.monotonic() - began < 6
    mount.remount(options=[])
    assert lines_of(log) == ["begun"]
    said = mount.errors()
    assert len(said) == 3 and "1000" in said[0] and "killed: the mount ended" in said[0]
    assert all(name in line and "was not run" in line for name, line in zip(("1001", "1002"), said[1:]))


def test_umount_by_the_verb_waits_for_it(mounted, log, ckptfs):
    mount = mounted("sleep 1; ls $CKPT_PATH > $LOG.ls; echo $CKPT_STEP >> $LOG")
    save(mount, "1000")
    save(mount, "1001")
    ckptfs("umount", mount.path)
    assert lines_of(log) == ["1000", "1001"] and "config.json" in lines_of(log.parent / "log.ls")


def test_it_may_use_the_mount_and_the_verbs(mounted, log, ckptfs, store):
    mount = mounted(f'cp -r $CKPT_PATH/params $LOG.d && {ckptfs} pin $CKPT_PATH && echo done >> $LOG')
    save(mount, "1000")
    ckptfs("wait", "--idle", "--timeout", "20s", store)
    assert lines_of(log) == ["done"] and ckptfs.json("info", store, "1000")["pinned"] is True
    assert trees.files(str(log) + ".d") == trees.files(mount / "1000/params")


def test_a_step_that_is_gone_by_then_needs_it_no_more(mounted, log, ckptfs, store):
    mount = mounted('echo $CKPT_STEP >> $LOG; [ $CKPT_STEP != 1 ] || sleep 2')
    for name in ("1", "2", "3"):
        save(mount, name)
    ckptfs("rm", store, "2")
    os.rename(mount / "3", mount / "best")
    ckptfs("wait", "--idle", "--timeout", "20s", store)
    assert lines_of(log) == ["1", "best"] and mount.errors() == []


def test_what_a_store_says_is_never_run(mount, store, ckptfs, program, log, scratch):
    path = program("echo run >> $LOG")
    done = ckptfs("config", store, f"on_commit={path}", check=False)
    assert done.returncode == 2 and "on_commit" in done.stderr
    mount.umount()
    identity = json.loads((store / "store.json").read_text())
    identity["settings"] = {"on_commit": str(path)}
    (store / "store.json").write_text(json.dumps(identity))
    mount.start()
    save(mount, "1000")
    ckptfs("wait", "--idle", "--timeout", "20s", store)
    mount.umount()
    assert not log.exists() and ckptfs("ls", store).stdout.split() == ["1000"]
    (scratch / "here").mkdir()
    for value in ("program", str(scratch), str(scratch / "none"), str(store / "store.json"), ""):
        done = ckptfs("mount", store, scratch / "here", "-o", f"on_commit={value}", check=False)
        assert done.returncode == 2 and "the absolute path of a program" in done.stderr, done.stderr
