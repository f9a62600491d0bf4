"""`ckptfs begin --from` and `--add-only`: a staged step with what another has, and one in which nothing that was closed changes."""

import os

import pytest

from support import trees
from support.fixtures import both_modes

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def saved(mount, stage, commit):
    """The step 1000 with attributes of all kinds: {path: bytes}."""
    made = stage("1000", size=200_000)
    folder = mount / "1000"
    os.chmod(folder / "config.json", 0o640)
    os.setxattr(folder / "config.json", "user.x", b"y")
    os.utime(folder / "params/layer_0/w0.bin", ns=(5, 2_000_000_007))
    os.link(folder / "config.json", folder / "params/link")
    os.mkdir(folder / "hollow", 0o700)
    commit(folder)
    made["params/link"] = made["config.json"]
    return made


def disk_bytes(folder):
    seen = {}
    for at, _, files in os.walk(folder):
        for name in files:
            st = os.lstat(os.path.join(at, name))
            seen[st.st_ino] = st.st_blocks * 512
    return sum(seen.values())


# Link counts are those of the new step: it shares no inode with the old.
def described(folder):
    return {path: {k: v for k, v in e.items() if k != "nlink"} for path, e in trees.describe(folder).items() if path != "."}


# --- --from ---------------------------------------------------------------------------------------------------------------


@both_modes
def test_it_has_all_that_the_step_has(mount, saved, ckptfs, store):
    before, at_first = described(mount / "1000"), disk_bytes(store / "sessions")
    ckptfs("begin", "--from", "1000", store, "runs-best")
    new = mount / "runs-best"
    assert mount.listing() == ["1000"]
    assert trees.files(new) == saved and described(new) == before
    assert disk_bytes(store / "sessions") - at_first < 20_000, "no array was copied"
    ckptfs("commit", store, "runs-best")
    for _ in range(2):
        assert mount.listing() == ["1000", "runs-best"]
        for name in ("1000", "runs-best"):
            assert trees.files(mount / name) == saved and described(mount / name) == before
        mount.remount()
    assert ckptfs.json("verify", store)["bad"] == []
    inodes = [os.stat(mount / name / "empty").st_ino for name in ("1000", "runs-best")]
    assert inodes[0] != inodes[1]


@both_modes
def test_what_is_changed_in_it_is_its_own(mount, saved, ckptfs, store):
    before = trees.describe(mount / "1000", inodes=True)
    ckptfs("begin", "--from", "1000", store, "best")
    new, made = mount / "best", dict(saved)
    with open(new / "params/layer_0/w0.bin", "r+b") as f:
        f.seek(1000)
        f.write(b"changed")
    made["params/layer_0/w0.bin"] = saved["params/layer_0/w0.bin"][:1000] + b"changed" + saved["params/layer_0/w0.bin"][1007:]
    os.truncate(new / "params/layer_1/w1.bin", 10)
    made["params/layer_1/w1.bin"] = saved["params/layer_1/w1.bin"][:10]
    os.chmod(new / "params/layer_2/w2.bin", 0o600)
    os.setxattr(new / "empty", "user.x", b"z")
    os.unlink(new / "params/layer_0/w3.bin")
    os.rename(new / "params/layer_1/w4.bin", new / "moved")
    made["moved"] = made.pop("params/layer_1/w4.bin")
    del made["params/layer_0/w3.bin"]
    trees.write(new / "config.json", b"rewritten")
    trees.write(new / "added", b"added")
    made |= {"config.json": b"rewritten", "added": b"added"}
    made["params/link"] = (new / "params/link").read_bytes()
    assert made["params/link"] in (b"rewritten", saved["config.json"])
    trees.write(new / ".finalize", b"")
    for _ in range(2):
        assert trees.files(new) == made
        assert trees.files(mount / "1000") == saved and trees.describe(mount / "1000", inodes=True) == before
        mount.remount()
    assert os.stat(new / "params/layer_2/w2.bin").st_mode & 0o777 == 0o600 and os.getxattr(new / "empty", "user.x") == b"z"
    assert ckptfs.json("verify", store)["bad"] == []


def test_from_a_deleted_step_and_it_outlives_that(mount, saved, ckptfs, store):
    ckptfs("rm", store, "1000")
    ckptfs("begin", "--from", "trash/1000", store, "1000")
    assert trees.files(mount / "1000") == saved
    ckptfs("commit", store, "1000")
    ckptfs("rm", "--now", "--yes", store, "trash/1000")
    for _ in range(2):
        assert mount.listing() == ["1000"] and trees.files(mount / "1000") == saved
        mount.remount()
    assert ckptfs.json("verify", store)["bad"] == []


def test_from_the_latest_and_into_a_folder(mount, saved, stage, commit, ckptfs, store):
    newer = stage("2000")
    commit(mount / "2000")
    os.makedirs(mount / "runs/a")
    ckptfs("begin", "--from", "latest", store, "runs/a/best")
    assert trees.files(mount / "runs/a/best") == newer
    ckptfs("commit", store, "runs/a/best")
    assert mount.listing("runs/a") == ["best"]


def test_from_a_step_that_had_amends_and_removals(mount, saved, ckptfs, store):
    trees.write(mount / "1000/late", b"late")
    ckptfs("rm", store, "1000/params/layer_0")
    expected = trees.files(mount / "1000")
    ckptfs("begin", "--from", "1000", store, "best")
    assert trees.files(mount / "best") == expected
    ckptfs("commit", store, "best")
    ckptfs("rm", "--now", "--yes", store, "1000")
    mount.remount()
    assert trees.files(mount / "best") == expected and ckptfs.json("verify", store)["bad"] == []


def test_a_session_that_is_dropped_harms_nothing(mount, saved, ckptfs, store):
    ckptfs("begin", "--from", "1000", store, "best")
    trees.write(mount / "best/config.json", b"x")
    ckptfs("abort", "--yes", store, "best")
    assert not (mount / "best").exists() and trees.files(mount / "1000") == saved
    mount.remount()
    assert trees.files(mount / "1000") == saved


def test_a_session_of_a_dead_daemon_has_it_all(mount, saved, ckptfs, store):
    ckptfs("begin", "--from", "1000", store, "best")
    trees.write(mount / "best/config.json", b"x")
    mount.kill9()
    mount.start()
    assert mount.listing() == ["1000"]
    ckptfs("resume", store, "best")  # it is staged already
    expected = trees.files(mount / "best")
    assert expected["config.json"] == b"x" and expected.keys() == saved.keys()
    ckptfs("commit", store, "best")
    mount.remount()
    assert trees.files(mount / "best") == expected and trees.files(mount / "1000") == saved


@pytest.mark.parametrize("words, status", [
    (["--from", "nothing", "best"], 1), (["--from", "trash/1000", "best"], 1), (["--from", "1000", "1000"], 1), (["--from", "1000", "plain"], 1),
    (["--from", "1000/config.json", "best"], 1), (["--from", "plain", "best"], 1), (["--from", "staged", "best"], 1), (["--from", "1000", "absent/best"], 1),
    (["--from", "", "best"], 1), (["--from", "1000", "a", "b", "c"], 2), (["--from"], 2), (["--add-only=x", "best"], 2)])
def test_wrong_use_is_refused_and_leaves_nothing(mount, saved, ckptfs, store, words, status):
    (mount / "plain").mkdir()
    ckptfs("begin", store, "staged")
    before = sorted(os.listdir(store / "sessions"))
    options = [w for w in words if w.startswith("-")] + (words[1:2] if words[0] == "--from" else [])
    done = ckptfs("begin", *options, store, *[w for w in words if w not in options], check=False)
    assert done.returncode in (status, 2) and done.returncode and done.stderr.startswith("ckptfs: "), done
    assert sorted(os.listdir(store / "sessions")) == before
    assert [s["name"] for s in ckptfs.json("sessions", store)] == ["staged"]


# --- --add-only -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def adding(mount, ckptfs, store):
    """The session `best`, which is only added to, with the closed file f; its folder."""
    ckptfs("begin", "--add-only", store, "best")
    (mount / "best/d").mkdir()
    trees.write(mount / "best/f", b"closed")
    return mount / "best"


REFUSED = {
    "EEXIST": ["os.open(f, os.O_WRONLY)", "os.open(f, os.O_RDWR)", "os.open(f, os.O_WRONLY | os.O_APPEND)", "os.open(f, os.O_WRONLY | os.O_TRUNC)",
               "os.open(f, os.O_RDONLY | os.O_TRUNC)", "os.open(f, os.O_CREAT | os.O_WRONLY)", "os.open(f, os.O_CREAT | os.O_EXCL | os.O_WRONLY)", "os.truncate(f, 0)",
               "os.truncate(f, 100)", "os.rename(g, f)", "os.link(g, f)", "os.symlink('x', f)", "os.mkdir(f)"],
    "EPERM": ["os.unlink(f)"],
}


@both_modes
@pytest.mark.parametrize("error, call", [(e, c) for e, calls in REFUSED.items() for c in calls])
def test_what_was_closed_stays(mount, adding, agent, ckptfs, store, error, call):
    trees.write(adding / "g", b"other")
    assert agent().errno_of(call, f=str(adding / "f"), g=str(adding / "g")) == error
    assert trees.files(adding) == {"f": b"closed", "g": b"other"}


def test_the_whole_refusal_survives_a_restart(mount, adding, agent, ckptfs, store):
    trees.write(adding / "g", b"other")
    mount.kill9()
    mount.start()
    ckptfs("resume", store, "best")
    a = agent()
    for error, calls in REFUSED.items():
        for call in calls:
            assert a.errno_of(call, f=str(adding / "f"), g=str(adding / "g")) == error, call
    trees.write(adding / "d/new", b"new")
    ckptfs("commit", store, "best")
    mount.remount()
    assert trees.files(adding) == {"f": b"closed", "g": b"other", "d/new": b"new"}


def test_an_exchange_replaces_too(mount, adding, agent):
    trees.write(adding / "g", b"other")
    error = agent().errno_of("""libc = ctypes.CDLL(None, use_errno=True)
if libc.renameat2(-100, f.encode(), -100, g.encode(), 2):
    raise OSError(ctypes.get_errno(), 'renameat2')""", f=str(adding / "f"), g=str(adding / "g"))
    assert error in ("EEXIST", "EPERM", "EINVAL")
    assert trees.files(adding) == {"f": b"closed", "g": b"other"}


@both_modes
def test_what_is_open_may_be_joined_and_read_and_new_files_come(mount, adding, agent, ckptfs, store):
    a, b = agent(), agent()
    a.run("fd = os.open(path, os.O_CREAT | os.O_WRONLY); os.write(fd, b'one ')", path=str(adding / "shared"))
    b.run("fd = os.open(path, os.O_WRONLY | os.O_APPEND); os.write(fd, b'two')", path=str(adding / "shared"))
    a.run("os.close(fd)")
    b.run("os.ftruncate(fd, 6); os.close(fd)")
    assert (adding / "f").read_bytes() == b"closed" and (adding / "shared").read_bytes() == b"one tw"
    trees.write(adding / "d/.tmp", b"arrays")
    os.rename(adding / "d/.tmp", adding / "d/arrays")  # to a free name
    os.symlink("f", adding / "link")
    ckptfs("commit", store, "best")
    assert trees.files(adding) == {"f": b"closed", "shared": b"one tw", "d/arrays": b"arrays"} and os.readlink(adding / "link") == "f"


def test_with_from_all_files_of_the_step_are_closed(mount, saved, agent, ckptfs, store):
    ckptfs("begin", "--from", "1000", "--add-only", store, "best")
    new, a = mount / "best", agent()
    for call in ("os.open(f, os.O_WRONLY)", "os.truncate(f, 0)", "os.rename(g, f)"):
        assert a.errno_of(call, f=str(new / "config.json"), g=str(new / "empty")) == "EEXIST"
    assert a.errno_of("os.unlink(f)", f=str(new / "config.json")) == "EPERM"
    trees.write(new / "adapter", b"small")
    ckptfs("commit", store, "best")
    mount.remount()
    assert trees.files(new) == saved | {"adapter": b"small"} and trees.files(mount / "1000") == saved


def test_sessions_without_the_option_are_as_ever(mount, ckptfs, store):
    ckptfs("begin", store, "best")
    trees.write(mount / "best/f", b"one")
    trees.write(mount / "best/f", b"two")
    os.unlink(mount / "best/f")
