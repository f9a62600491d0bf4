"""durability=remote: the call that completes a step returns when the step is in the bucket, and nothing else waits for it."""

import errno
import os
import signal
import subprocess
import time

import pytest

from support import trees
from support.last_acts import commit_file, dcp, megatron, nemo, tracker, trainer
from support.mounting import wait_until
from test_s3 import SEEN, client, environment, keys, node, probed_before, refused, url  # noqa: F401

pytestmark = pytest.mark.timeout(90)

DURABLE = ["durability=remote", "commit_quiet=1s"]
HELD = {"do": "reset-before"}  # all that is asked of the bucket
CLOSE = "fd = os.open(step + '/.finalize', os.O_CREAT | os.O_WRONLY); os.close(fd)"
RENAME = "os.rename(step + '.tmp', step)"


def where(program, n, name="1000"):
    return next(row["durable"] for row in program.json("ls", n.path) if row["name"] == name)


@pytest.fixture
def held(node, fault_proxy):
    """A node whose bucket does not answer from now on, and a step that lacks its last act."""
    n = node("a", fault_proxy.endpoint, DURABLE)
    (n / "1000").mkdir()
    trees.fill(n / "1000")
    fault_proxy.play(HELD)
    return n


LAST = [(megatron, "iter_0000100"), (trainer, "checkpoint-500"), (dcp, "step-100"), (dcp, "mymodel"), (commit_file, "100"),
        (tracker, "global_step_7"), (nemo, "epoch=0-step=10"), ("marker", "1000"), ("marker", "plain"), ("rename", "1000"), ("orbax", "my_model"),
        ("plain rename", "step_5")]


@pytest.mark.parametrize("writer,name", LAST, ids=[f"{w if isinstance(w, str) else w.__name__}-{n}" for w, n in LAST])
def test_the_last_act_returns_when_the_step_is_in_the_bucket(node, fault_proxy, ckptfs, writer, name):
    """The entry that says so is held up for a second. Where it is not the bucket's, the node alone has the step."""
    n = node("a", fault_proxy.endpoint, DURABLE)
    step = n / name
    fault_proxy.play({"op": "PutObject", "key": "*/log/*", "do": "stall", "seconds": 1.0})
    if isinstance(writer, str):
        made = {"marker": step, "rename": n / f"{name}.tmp", "orbax": n / f"{name}.orbax-checkpoint-tmp-7", "plain rename": n / "made-here"}[writer]
        made.mkdir()
        trees.fill(made)
        began = time.monotonic()
        if writer == "marker":
            trees.write(step / ".finalize", b"")
        else:
            made.rename(step)
    else:
        save = writer(str(step))
        next(save)
        began = time.monotonic()
        next(save, None)
    assert where(ckptfs, n, name) == "remote"
    assert time.monotonic() - began >= 1.0
    fault_proxy.play()
    n.lose()
    assert name in node("b").listing()


def test_the_bucket_has_it_at_that_moment(node, fault_proxy):
    n = node("a", fault_proxy.endpoint, DURABLE)
    made = n.save("1000", size=300_000)
    fault_proxy.play(HELD)
    n.lose()
    assert trees.describe(node("b") / "1000") == made


def test_all_else_goes_on_while_a_close_waits(held, fault_proxy, agent, ckptfs):
    a, other = agent(), agent()
    a.start(CLOSE, step=str(held / "1000"))
    wait_until(lambda: "1000" in held.listing(), what="the step here")
    assert a.still_busy(1.0)
    other.run("""
for i in range(3):
    os.mkdir(mount + f'/{i + 2000}')
    with open(mount + f'/{i + 2000}/weights.bin', 'wb') as f:
        f.write(os.urandom(100000))
    with open(mount + f'/log-{i}', 'w') as f:
        f.write('line')
        f.flush()
        os.fsync(f.fileno())
    os.listdir(mount)
    os.stat(mount + '/1000')
    os.listdir(mount + '/1000')
    os.rename(mount + f'/log-{i}', mount + f'/log-{i}.old')
    open(mount + '/.ckptfs/status.json').read()
os.unlink(mount + '/log-0.old')
""", timeout=10, mount=str(held.path))
    assert ckptfs.json("status", held.path)["durability"] == "remote"
    assert a.still_busy(0.1) and where(ckptfs, held) == "local"
    fault_proxy.play()
    a.result(timeout=60)
    assert where(ckptfs, held) == "remote"


@pytest.mark.parametrize("act", [CLOSE, RENAME], ids=["marker", "rename"])
@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_that_kills_ends_the_wait(held, fault_proxy, agent, act, sig):
    """The step stays, and is pushed."""
    if act == RENAME:
        (held / "1000").rename(held / "1000.tmp")
    a = agent()
    a.start(act, step=str(held / "1000"))
    assert a.still_busy(1.0)
    a.kill(sig)
    assert a.wait_gone(5) < 1.5
    assert held.listing() == ["1000"]
    fault_proxy.play()
    held.wait("1000", timeout=60)


def test_timer_signals_do_not_end_it(held, fault_proxy, agent):
    a = agent()
    a.run("import signal; signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)")
    a.start(CLOSE, step=str(held / "1000"))
    assert a.still_busy(1.0)
    fault_proxy.play()
    a.result(timeout=60)


def test_the_end_of_the_mount_ends_the_wait(held, fault_proxy, agent):
    """It says that it does not know; the step is there after the next mount, and is pushed then."""
    a = agent()
    a.start(CLOSE, step=str(held / "1000"))
    assert a.still_busy(0.5)
    began = time.monotonic()
    os.kill(held.pid, signal.SIGTERM)
    with pytest.raises(OSError) as failed:
        a.result(timeout=20)
    assert failed.value.errno in (errno.EINTR, errno.ECONNABORTED, errno.ENOTCONN) and time.monotonic() - began < 8
    wait_until(lambda: not held.alive(), 20, "the end of the daemon")
    fault_proxy.play()
    held.start()
    assert held.listing() == ["1000"]
    held.wait("1000", timeout=60)


def test_a_bucket_that_takes_nothing_is_an_error_after_commit_timeout(node, fault_proxy, agent):
    """The step is a step here all the same, and a second attempt finds it in the bucket."""
    n = node("a", fault_proxy.endpoint, [*DURABLE, "commit_timeout=2s"])
    (n / "1000").mkdir()
    trees.fill(n / "1000")
    fault_proxy.play(HELD)
    a = agent()
    assert a.errno_of(CLOSE, step=str(n / "1000")) == "EIO"
    assert n.listing() == ["1000"]
    assert any("1000" in line and "not in the object store" in line for line in n.errors()), n.errors()
    fault_proxy.play()
    n.wait("1000", timeout=60)
    a.run(CLOSE, step=str(n / "1000"))


@pytest.mark.parametrize("act", [CLOSE, RENAME], ids=["marker", "rename"])
def test_who_loses_the_name_is_told_the_new_one(held, node, fault_proxy, agent, act):
    """The kernel has locked the folder of a rename: what is told of the name meanwhile must not wait for that."""
    if act == RENAME:
        (held / "1000").rename(held / "1000.tmp")
    other = node("b")
    a = agent()
    a.start(act, step=str(held / "1000"))
    assert a.still_busy(0.5)
    theirs = other.save("1000", files=3)
    other.wait("1000")
    fault_proxy.play()
    a.result(timeout=40)
    conflict = f"1000.conflict-{os.uname().nodename}"
    assert any("1000" in line and conflict in line and "first" in line for line in held.errors()), held.errors()
    wait_until(lambda: held.listing() == ["1000", conflict], SEEN, "both steps")
    assert trees.describe(held / "1000") == theirs
    held.lose()
    assert node("c").listing() == ["1000", conflict]


@pytest.mark.parametrize("verb", ["commit", "save"])
def test_verbs_wait_too(held, fault_proxy, ckptfs, scratch, verb):
    if verb == "save":
        trees.fill(scratch / "made")
    words = ["commit", held.path, "1000"] if verb == "commit" else ["save", held.path, scratch / "made", "1500"]
    with pytest.raises(subprocess.TimeoutExpired):
        ckptfs(*words, timeout=2)
    name = words[-1]
    assert name in held.listing() and where(ckptfs, held, name) == "local"
    fault_proxy.play()
    held.wait(timeout=60)
    trees.fill(scratch / "more")
    fault_proxy.play({"op": "PutObject", "key": "*/log/*", "do": "stall", "seconds": 1.0})
    ckptfs("save", held.path, scratch / "more", "3000")
    assert where(ckptfs, held, "3000") == "remote"
    held.umount()
    ckptfs("config", held.work_dir, "durability=remote")
    ckptfs("save", held.work_dir, scratch / "more", "4000")
    assert [row["durable"] for row in ckptfs.json("ls", held.work_dir) if row["name"] == "4000"] == ["remote"]
    held.start()
    assert "4000" in held.listing()


CHANGES = {
    "fsync-file": "os.utime(fd, ns=(1, 5_000_000_000)); os.fsync(fd)",
    "fsync-folder": "os.utime(top, ns=(1, 5_000_000_000)); os.fsync(top)",
    "rename-of-step": "os.rename(step, step + '0'); os.rename(step + '0', step)",
    "close-of-addition": "new = os.open(step + '/report.md', os.O_CREAT | os.O_WRONLY); os.write(new, b'text'); os.close(new)",
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_a_step_waits_too(held, fault_proxy, agent, ckptfs, change):
    fault_proxy.play()
    held.complete("1000")
    time.sleep(2)  # what comes so soon after the save is part of it
    fault_proxy.play(HELD)
    a = agent()
    a.run("fd = os.open(step + '/' + name, os.O_RDONLY); top = os.open(step, os.O_RDONLY)", step=str(held / "1000"),
          name=next(p.name for p in (held / "1000").iterdir() if p.is_file()))
    a.start(CHANGES[change])
    assert a.still_busy(1.0)
    [row] = ckptfs.json("ls", held.work_dir)  # the mount's folder is locked by a rename
    assert row["durable"] == "local"
    fault_proxy.play()
    a.result(timeout=60)
    assert where(ckptfs, held) == "remote"


def test_a_local_store_has_no_such_durability(world, scratch, ckptfs):
    done = refused(world, scratch / "store", scratch / "mnt", "durability=remote")
    assert "needs a store with a URL" in done.stderr
    ckptfs("config", scratch / "store", "durability=remote")
    assert "needs a store with a URL" in refused(world, scratch / "store", scratch / "mnt", "hot=2").stderr
