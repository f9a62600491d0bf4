"""The command line: what each verb prints and answers, and how stores and steps are named."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time

import pytest

from support import trees
from support.fixtures import needs_root
from support.mounting import wait_until
from support.schema import mismatch

pytestmark = pytest.mark.timeout(60)

# --- The store of most tests ------------------------------------------------------------------------------------------


@pytest.fixture
def filled(mount, commit):
    """Steps 1000 and 2000 (metrics, temporary), checkpoints/checkpoint-5 and -10, and 3000, which stays staged."""
    made = {}
    for name, text in (("1000", b""), ("2000", b'{"temporary":true,"extras":{"tag":"best"},"metrics":{"loss":2.5}}'),
                       ("checkpoints/checkpoint-5", b'{"metrics":{"loss":0.5}}'), ("checkpoints/checkpoint-10", b'{"metrics":{"loss":10}}'), ("3000", None)):
        (mount / name).mkdir(parents=True)
        made[name] = trees.fill(mount / name, seed=name)
        if text is not None:
            commit(mount / name, text)
    os.symlink("params", mount / "3000/link")
    return made


STEPS = ["1000", "2000", "checkpoints/checkpoint-5", "checkpoints/checkpoint-10"]


def test_verbs_without_an_answer_say_ok_or_why_not(ckptfs, store, scratch, stage, mount):
    stage("1")
    assert ckptfs.json("abort", store, "1", "--yes") == {"ok": True}
    point = scratch / "beside"
    point.mkdir()
    assert ckptfs.json("mount", store, point, "-o", "ro") == {"ok": True}
    assert ckptfs.json("umount", point) == {"ok": True}
    for words in (["umount", point], ["mount", store, point], ["abort", store, "1", "--yes"], ["init", store], ["ls", store, "7"], ["cat"]):
        done = ckptfs(*words, *([] if words[0] == "cat" else ["--json"]), check=False)
        assert done.returncode != 0 and done.stderr.startswith("ckptfs: ")
        assert words[0] == "cat" or mismatch(json.loads(done.stdout), "failure") is None


def test_answers_are_the_same_mounted_or_not(filled, mount, store, ckptfs):
    def answers():
        return [ckptfs.json("ls", store), ckptfs.json("ls", store, "checkpoints/latest"), ckptfs.json("info", store, "2000"), ckptfs.json("verify", store),
                ckptfs("cat", store, "1000", "config.json").stdout]
    before = answers()
    mount.umount()
    assert answers() == before


# --- ls, info, cat ----------------------------------------------------------------------------------------------------


def test_ls_lists_committed_steps_by_folder_and_number(filled, store, ckptfs):
    assert ckptfs("ls", store).stdout.split() == STEPS
    rows = {s["name"]: s for s in ckptfs.json("ls", store)}
    assert list(rows) == STEPS
    assert {n: rows[n]["files"] for n in STEPS} == {n: len(filled[n]) for n in STEPS}
    assert {n: rows[n]["bytes"] for n in STEPS} == {n: sum(map(len, filled[n].values())) for n in STEPS}
    assert [rows[n]["number"] for n in STEPS] == [1000, 2000, 5, 10]
    assert [rows[n]["temporary"] for n in STEPS] == [False, True, False, False]
    assert rows["2000"]["extras"] == {"tag": "best"} and rows["2000"]["metrics"] == {"loss": 2.5} and rows["1000"]["metrics"] == {}


def test_ls_of_a_folder_lists_its_steps(mount, filled, store, ckptfs, commit):
    in_folder = ["checkpoints/checkpoint-5", "checkpoints/checkpoint-10"]
    for words in ([store, "checkpoints"], [store, "checkpoints/"], [mount / "checkpoints"]):
        assert ckptfs("ls", *words).stdout.split() == in_folder
    assert ckptfs("ls", store, "checkpoints", "-r", "--where", "number > 5").stdout.split() == in_folder[1:]
    assert ckptfs("ls", store, "check", check=False).returncode == 1, "a part of a name is no folder"
    assert "nosuch" in ckptfs("ls", store, "checkpoints", "--sort", "nosuch", check=False).stderr


@pytest.mark.parametrize("flags, want", [
    (["-r"], STEPS[::-1]), (["-t"], ["checkpoints/checkpoint-10", "checkpoints/checkpoint-5", "2000", "1000"]), (["-tr"], STEPS),
    (["--sort", "metrics.loss"], ["checkpoints/checkpoint-5", "2000", "checkpoints/checkpoint-10", "1000"]),
    (["--sort", "metrics.loss", "-r"], ["checkpoints/checkpoint-10", "2000", "checkpoints/checkpoint-5", "1000"]),
    (["--sort", "number"], ["checkpoints/checkpoint-5", "checkpoints/checkpoint-10", "1000", "2000"]),
    (["--staged"], ["3000"]), (["--trash"], []), (["--all"], ["1000", "2000", "3000"] + STEPS[2:]),
    (["--where", "number >= 1000"], ["1000", "2000"]), (["--where", "number>=1000 and metrics.loss<3"], ["2000"]),
    (["--where", "metrics.loss != 2.5"], ["1000"] + STEPS[2:]), (["--where", "temporary = true"], ["2000"]), (["--where", "extras.tag == 'best'"], ["2000"]),
    (["--where", 'name = "checkpoints/checkpoint-5"'], ["checkpoints/checkpoint-5"]), (["--where", "bytes > 1GiB"], []), (["--where", "bytes >= 1B"], STEPS),
    (["--where", "committed_at > 2001-01-01"], STEPS), (["--where", "committed_at < 2001-01-01T00:00:00Z"], []), (["--where", "extras.tag > 3"], ["2000"])],
    ids=lambda x: " ".join(x))
def test_ls_chooses_and_sorts(filled, store, ckptfs, flags, want):
    assert ckptfs("ls", store, *flags).stdout.split() == want
    assert [s["name"] for s in ckptfs.json("ls", store, *flags)] == want


def test_ls_of_a_step_lists_its_files(filled, mount, store, ckptfs):
    rows = ckptfs.json("ls", store, "1000")
    assert {r["path"]: r["bytes"] for r in rows if r["type"] == "file"} == {p: len(d) for p, d in filled["1000"].items()}
    for row in rows:
        st = os.lstat(mount / "1000" / row["path"])
        assert row["mode"] == st.st_mode & 0o7777
        assert row["type"] == "dir" or row["bytes"] == st.st_size
    below = ckptfs("ls", store, "1000/params").stdout.splitlines()
    assert below and all(line.startswith("params/") for line in below)


def test_ls_long_is_a_table_with_a_row_for_each(filled, store, ckptfs):
    lines = ckptfs("ls", "-l", store).stdout.splitlines()
    assert lines[0].split()[0] == "NAME" and [line.split()[0] for line in lines[1:]] == STEPS
    lines = ckptfs("ls", "-l", store, "1000").stdout.splitlines()
    assert "PATH" in lines[0] and len(lines) == 1 + len(ckptfs.json("ls", store, "1000"))


def test_info_has_every_version_of_a_step(mount, store, ckptfs, commit):
    (mount / "1").mkdir()
    trees.write(mount / "1/f", b"x")
    commit(mount / "1")
    commit(mount / "1", b'{"metrics":{"loss":1}}')
    step = ckptfs.json("info", store, "1")
    assert (step["version"], step["metrics"]) == (2, {"loss": 1})
    assert [(v["version"], v["state"]) for v in step["versions"]] == [(1, "old"), (2, "current")]


def test_info_names_the_mounts(filled, mount, store, ckptfs):
    assert [m["mountpoint"] for m in ckptfs.json("info", store)["mounts"]] == [str(mount.path)]
    mount.umount()
    assert ckptfs.json("info", store)["mounts"] == []


def test_cat_gives_the_bytes(filled, mount, store, ckptfs):
    for words in ([store, "1000", "config.json"], [store, "1000/config.json"], [mount / "1000/config.json"], [mount / "1000", "config.json"]):
        done = subprocess.run([ckptfs.path, "cat", *words], capture_output=True, check=True)
        assert done.stdout == filled["1000"]["config.json"]


# --- How stores and steps are named -----------------------------------------------------------------------------------


def test_a_store_is_named_by_its_directory_a_url_its_mount_the_environment_or_where_one_stands(filled, mount, store, ckptfs, scratch):
    elsewhere = dict(os.environ, CKPTFS_STORE="")
    named = dict(os.environ, CKPTFS_STORE=str(store))
    link = scratch / "link"
    link.symlink_to(mount.path)
    ways = [([store], "/", elsewhere), ([f"file://{store}"], "/", elsewhere), ([mount.path], "/", elsewhere), ([link], "/", elsewhere), (["mnt"], scratch, elsewhere),
            (["store"], scratch, elsewhere), ([], "/", named), ([], mount.path, elsewhere), ([], mount / "checkpoints", elsewhere), ([], mount / "1000/params", elsewhere)]
    for words, cwd, env in ways:
        assert ckptfs("ls", *words, cwd=cwd, env=env).stdout.split() == STEPS, f"{words} in {cwd}"


def test_a_path_in_a_mount_is_store_and_step_at_once(filled, mount, ckptfs):
    here = dict(cwd=mount / "checkpoints")
    for words, kwargs, want in (([mount / "1000"], {}, "1000"), ([mount / "checkpoints/checkpoint-5/"], {}, "checkpoints/checkpoint-5"), (["checkpoint-5"], here, "checkpoints/checkpoint-5"),
                                (["./checkpoint-10"], here, "checkpoints/checkpoint-10"), (["../2000"], here, "2000"), (["checkpoints/checkpoint-5"], here, "checkpoints/checkpoint-5"),
                                (["1000"], here, "1000"), (["latest"], here, "checkpoints/checkpoint-10")):
        assert ckptfs.json("info", *words, **kwargs)["name"] == want, words
    assert ckptfs.json("verify", mount / "1000", mount / "2000")["steps"] == 2


def test_a_path_below_a_stores_directory_is_store_and_step_at_once(filled, mount, store, ckptfs):
    mount.umount()
    for words, kwargs, want in (([store / "1000"], {}, "1000"), ([store / "checkpoints/latest"], {}, "checkpoints/checkpoint-10"), (["./checkpoints/checkpoint-5/"], dict(cwd=store), "checkpoints/checkpoint-5")):
        assert ckptfs.json("info", *words, **kwargs)["name"] == want, words
    assert ckptfs.json("verify", store / "1000", store / "2000")["steps"] == 2
    assert ckptfs("cat", store / "1000/config.json").stdout.encode() == filled["1000"]["config.json"]


def test_latest_and_those_before(filled, store, ckptfs):
    for word, want in (("latest", "2000"), ("latest~1", "1000"), ("checkpoints/latest", "checkpoints/checkpoint-10"), ("checkpoints/latest~1", "checkpoints/checkpoint-5")):
        assert ckptfs.json("info", store, word)["name"] == want
    for word in ("latest~2", "latest~99", "checkpoints/latest~2", "latest~", "latest~x", "latest~-1"):
        assert ckptfs("info", store, word, check=False).returncode == 1


def test_names_that_look_like_options(mount, store, ckptfs):
    for name in ("-step_1", "--json", "step_a b_2", "step_é_3"):
        (mount / f"{name}.partial_save").mkdir()
        trees.write(mount / f"{name}.partial_save/-f", b"x")
        os.rename(mount / f"{name}.partial_save", mount / name)
        assert json.loads(ckptfs("info", "--json", store, "--", name).stdout)["name"] == name
        assert ckptfs("cat", store, "--", name, "-f").stdout == "x"
        assert ckptfs.json("info", mount / name)["name"] == name


# --- verify -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def one(mount, store, commit):
    """An unmounted store with the step 1, of a file, a folder and a link; its session's directory."""
    (mount / "1/d").mkdir(parents=True)
    trees.write(mount / "1/a", b"a" * 5000)
    trees.write(mount / "1/d/b", b"b" * 5000)
    os.symlink("a", mount / "1/l")
    time.sleep(0.05)  # more than the kernel's clock for files is behind: they are older than the step
    commit(mount / "1")
    mount.umount()
    [session] = (store / "sessions").iterdir()
    return session


def damage(what, session):
    if what == "size":
        os.truncate(session / "a", 10)
    elif what == "mode":
        os.chmod(session / "a", 0o4777)
    elif what == "time":
        os.utime(session / "a", ns=(0, 10**18))
    elif what == "missing":
        (session / "d/b").unlink()
    elif what == "type":
        (session / "a").unlink()
        (session / "a").mkdir()
    elif what == "target":
        (session / "l").unlink()
        (session / "l").symlink_to("d")
    elif what == "stranger":
        os.link(session / "a", session / "d/new")  # as old as the step: something that its commit should have seen
    elif what == "strange name":
        os.link(session / "a", session / "d/b\x1b[31m\n")
    elif what == "folder gone":
        shutil.rmtree(session / "d")
    else:
        shutil.rmtree(session)


@pytest.mark.parametrize("what, path", [("size", "a"), ("mode", "a"), ("time", "a"), ("missing", "d/b"), ("type", "a"), ("target", "l"), ("stranger", "d/new"),
                                        ("strange name", "d/b\x1b[31m\n"), ("folder gone", "d"), ("all gone", None)])
def test_verify_finds_each_kind_of_damage_and_names_it(one, store, ckptfs, what, path):
    assert ckptfs.json("verify", store)["bad"] == []
    damage(what, one)
    done = ckptfs("verify", store, "--json", check=False)
    answer = json.loads(done.stdout)
    assert done.returncode == 1 and mismatch(answer, "verify") is None
    assert [(b["step"], b["path"]) for b in answer["bad"]] == [("1", path)]
    lines = ckptfs("verify", store, check=False).stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("ckptfs: 1") and lines[0].isprintable()


def test_verify_is_not_alarmed_by_what_a_killed_daemon_had_just_made(one, store, ckptfs):
    (one / "d/new").write_text("x")
    (one / "made").mkdir()
    (one / "link").symlink_to("a")
    assert ckptfs.json("verify", store)["bad"] == []


def test_verify_says_what_it_compares(one, store, ckptfs):
    assert "--read-data also reads every byte" in ckptfs("verify", store).stdout
    assert "2 files are not sealed" in ckptfs("verify", store, "--read-data").stdout
    assert ckptfs("verify", store, "--read-data", "--quiet").stdout.count("\n") == 1


def test_verify_of_one_step_does_not_look_at_others(mount, store, ckptfs, commit):
    for name in ("1", "2"):
        (mount / name).mkdir()
        trees.write(mount / name / f"f{name}", b"x")
        commit(mount / name)
    [session] = [p for p in (store / "sessions").iterdir() if (p / "f2").exists()]
    (session / "f2").unlink()
    assert ckptfs.json("verify", store, "1") == {"steps": 1, "files": 1, "bytes": 1, "unsealed": 1, "bad": []}
    assert ckptfs("verify", store, "2", check=False).returncode == 1
    assert ckptfs("verify", store, "9", check=False).stderr.startswith("ckptfs: 9: ")


@pytest.mark.parametrize("how", ["zeros", "cut", "removed"])
def test_repair_index_makes_it_anew(filled, mount, store, ckptfs, how):
    done = ckptfs("verify", store, "--repair-index", check=False)
    assert done.returncode == 1 and str(mount.path) in done.stderr, "not under a mount"
    mount.umount()
    before = ckptfs.json("ls", store)
    data = store / "index/data.mdb"
    if how == "removed":
        shutil.rmtree(store / "index")
    else:
        data.write_bytes(bytes(data.stat().st_size) if how == "zeros" else data.read_bytes()[:5000])
        done = ckptfs("verify", store, "--json", check=False)
        assert done.returncode == 1 and [b["path"] for b in json.loads(done.stdout)["bad"]] == ["index"]
        index = {c["name"]: c for c in json.loads(ckptfs("doctor", store, "--json", check=False).stdout)["checks"]}["index"]
        assert not index["ok"] and "repair-index" in index["hint"]
    assert ckptfs.json("ls", store) == before, "the index is never needed"
    assert ckptfs.json("verify", store, "--repair-index")["bad"] == []
    assert ckptfs.json("ls", store) == before
    assert data.exists() and ckptfs.json("verify", store)["bad"] == []


# --- sessions, abort, status, doctor ----------------------------------------------------------------------------------


def test_sessions_says_who_writes(mount, store, ckptfs, stage):
    made = stage("1")
    with open(mount / "1/open", "wb") as f:
        f.write(b"x")
        f.flush()
        [row] = ckptfs.json("sessions", store)
        assert (row["name"], row["state"], row["open_writers"], row["files"]) == ("1", "live", 1, len(made) + 1)
    mount.umount()
    [row] = ckptfs.json("sessions", store)
    assert (row["name"], row["state"], row["open_writers"], row["files"]) == ("1", "interrupted", 0, len(made) + 1)


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "unmounted"])
@pytest.mark.parametrize("by", ["name", "id"])
def test_abort_drops_one_session_for_good(mount, store, ckptfs, stage, by, mounted):
    stage("1")
    stage("2")
    if not mounted:
        mount.umount()
    rows = {r["name"]: r for r in ckptfs.json("sessions", store)}
    done = ckptfs("abort", store, "1", check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and "--yes" in done.stderr, "what destroys needs a word where nobody can be asked"
    assert len(ckptfs.json("sessions", store)) == 2
    ckptfs("abort", "--yes", store, rows["1"][by])
    assert [r["name"] for r in ckptfs.json("sessions", store)] == ["2"]
    wait_until(lambda: os.listdir(store / "sessions") == [rows["2"]["id"]], what="the removal of the files")
    assert not mounted or not (mount / "1").exists()


@pytest.mark.parametrize("folder", ["", "checkpoints"])
def test_name_of_an_aborted_step_is_free_at_once(mount, store, ckptfs, folder):
    (mount / folder).mkdir(exist_ok=True)
    for n in range(3):
        (mount / folder / "1").mkdir()
        (mount / folder / "1/f").write_text(str(n))
        os.stat(mount / folder / "1/f")
        [row] = ckptfs.json("sessions", store)
        ckptfs("abort", "--yes", store, row["id"])
    assert not (mount / folder / "1").exists()


def test_abort_asks_on_a_terminal(mount, store, ckptfs, stage):
    stage("1")
    for answer, status, left in ((b"n\n", 1, ["1"]), (b"\n", 1, ["1"]), (b"y\n", 0, [])):
        said, got = on_terminal([ckptfs.path, "abort", store, "1"], answer)
        assert got == status and "1" in said
        assert [r["name"] for r in ckptfs.json("sessions", store)] == left


def test_status_is_the_mounts_own(filled, mount, store, ckptfs):
    answer = ckptfs.json("status", store)
    assert answer["passthrough"] is True and [s["name"] for s in answer["staged"]] == ["3000"]
    assert answer.keys() == mount.status().keys()
    text = ckptfs("status", mount.path).stdout
    assert str(mount.path) in text and "3000" in text
    mount.umount()
    answer = ckptfs.json("status", store)
    assert answer["memory_bytes"] is None and answer["last_commit"]["step"] == "checkpoints/checkpoint-10"


def test_status_calls_a_step_in_a_folder_as_ls_does(mount, store, ckptfs, agent):
    folder = mount / "runs7/checkpoints"
    folder.mkdir(parents=True)
    (folder / "1").mkdir()
    trees.write(folder / "1/.finalize", b"")
    (folder / "2").mkdir()
    for answer in (mount.status(), ckptfs.json("status", store)):
        assert answer["last_commit"]["step"] == "runs7/checkpoints/1" == ckptfs.json("ls", store)[0]["name"]
        assert [s["name"] for s in answer["staged"]] == ["runs7/checkpoints/2"] == [s["name"] for s in ckptfs.json("sessions", store)]
    assert "runs7/checkpoints/2  0 files" in (mount / ".ckptfs/status").read_text()
    writer, a = agent(), agent()
    writer.run("fd = os.open(step + '/f', os.O_CREAT | os.O_WRONLY)", step=str(folder / "2"))
    a.start("fd = os.open(step + '/.finalize', os.O_CREAT | os.O_WRONLY); os.close(fd)", step=str(folder / "2"))
    wait_until(lambda: mount.status()["committing"] == ["runs7/checkpoints/2"], what="the commit under its whole name")
    writer.run("os.close(fd)")
    a.result()
    (folder.parent / "checkpoints").rename(mount / "ckpt")
    assert mount.status()["last_commit"]["step"] == "ckpt/2"


def test_status_tells_the_last_error(mount, store, ckptfs, stage):
    stage("1")
    with pytest.raises(OSError):
        trees.write(mount / "1/.finalize", b"{not json")
    for _ in range(2):
        assert "1" in ckptfs.json("status", store)["last_error"]["message"]
        assert "last error" in ckptfs("status", store).stdout
        if mount.alive():
            mount.umount()


def test_what_was_never_completed_is_named_by_umount_and_doctor_mounted_or_not(filled, mount, store, ckptfs):
    def doctor():
        [check] = [c for c in ckptfs.json("doctor", store)["checks"] if c["name"] == "sessions"]
        return check
    assert doctor()["ok"], "it is being saved"
    said = ckptfs("umount", "--force", mount.path).stderr
    assert said.startswith("ckptfs: 3000 is not complete yet, ") and said.index(f"`ckptfs commit {store} 3000`") < said.index(f"`ckptfs abort {store} 3000`")
    assert not doctor()["ok"] and "3000" in doctor()["detail"]
    mount.start()
    assert not doctor()["ok"] and "3000" in doctor()["detail"]
    (mount / "4000").mkdir()
    said = ckptfs("umount", "--force", mount.path).stderr
    assert said == f"ckptfs: 2 steps are not complete yet, their files are kept: `ckptfs sessions {store}`\n"
    ckptfs("abort", "--yes", store, "3000")
    ckptfs("abort", "--yes", store, "4000")
    mount.start()
    assert doctor()["ok"] and ckptfs("umount", mount.path).stderr == ""


@needs_root
def test_doctor_fails_without_fuse_device_and_says_what_to_do(ckptfs):
    script = 'mount --make-rprivate / && mount -t tmpfs none /dev && exec "$@"'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", ckptfs.path, "doctor", "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    checks = {c["name"]: c for c in json.loads(done.stdout)["checks"]}
    assert not checks["fuse"]["ok"] and "/dev/fuse" in checks["fuse"]["hint"]


def test_doctor_tells_of_machine_and_store(filled, mount, store, ckptfs, scratch):
    checks = {c["name"]: c for c in ckptfs.json("doctor", store)["checks"]}
    assert {"fuse", "passthrough", "io_uring", "fusermount3", "index", "limits", "kernel", "filesystem", "clock", "leases", "store"} <= checks.keys()
    assert str(mount.path) in checks["mounted"]["detail"] and "4 steps" in checks["store"]["detail"]
    mount.umount()
    checks = {c["name"]: c for c in ckptfs.json("doctor", store)["checks"]}
    assert not checks["sessions"]["ok"] and "sessions" in checks["sessions"]["hint"] and "3000" in checks["sessions"]["detail"]
    assert "filesystem" in {c["name"] for c in ckptfs.json("doctor", scratch)["checks"]}
    (store / "store.json").write_text("{")
    assert ckptfs("doctor", store, check=False).returncode == 1


# --- init -------------------------------------------------------------------------------------------------------------


def test_init_makes_a_store_in_an_absent_or_empty_directory_only(ckptfs, scratch):
    (scratch / "empty").mkdir()
    (scratch / "full").mkdir()
    (scratch / "full/f").write_text("x")
    for name in ("empty", "absent"):
        made = ckptfs.json("init", scratch / name)
        assert mismatch(made, "store") is None and made["steps"] == 0
        assert ckptfs.json("info", scratch / name) == made
        assert ckptfs("init", scratch / name, check=False).returncode == 1
    assert ckptfs("init", scratch / "full", check=False).returncode == 1
    assert os.listdir(scratch / "full") == ["f"]
    assert ckptfs("init", scratch / "no/parent", check=False).returncode == 1


# --- Terminals, pipes, signals ----------------------------------------------------------------------------------------


def on_terminal(command, typed=b"", env=None):
    """(all that it wrote, exit status) of a command whose stdin, stdout and stderr are a terminal."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(command[0], [os.fspath(c) for c in command], dict(os.environ, TERM="xterm", **(env or {})))
    os.write(fd, typed)
    said = b""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and select.select([fd], [], [], 20)[0]:
        try:
            piece = os.read(fd, 4096)
        except OSError:
            break
        if not piece:
            break
        said += piece
    os.close(fd)
    return said.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_help_of_a_verb_is_a_man_page_on_a_terminal(ckptfs, scratch):
    said, status = on_terminal([ckptfs.path, "help", "umount"], env={"MANPAGER": "cat", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
    assert status == 0
    for words in ("CKPTFS(1)", "ckptfs umount - Waits for pending work, then unmounts", "-n, --now", "-q, --quiet", "ckptfs umount --now /ckpt"):
        assert words in re.sub(r"\x1b\[\d*m|.\x08", "", said), said
    said, status = on_terminal([ckptfs.path, "help", "umount"], env={"PATH": str(scratch)})
    assert status == 0 and said.replace("\r", "") == ckptfs("umount", "--help").stdout, "without man"


def test_colour_is_for_terminals_that_want_it(ckptfs):
    os.environ.pop("NO_COLOR", None)
    assert "\x1b[" in on_terminal([ckptfs.path, "doctor"])[0]
    assert "\x1b[" not in on_terminal([ckptfs.path, "doctor"], env={"NO_COLOR": "1"})[0]
    assert "\x1b[" not in ckptfs("doctor", check=False).stdout


def test_stdout_that_cannot_be_written_is_a_failure_and_one_that_was_closed_is_quiet(filled, store, ckptfs):
    with open("/dev/full", "w") as full:
        done = subprocess.run([ckptfs.path, "ls", store], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("ckptfs: standard output: ")
    for words in (["ls", store], ["ls", store, "--json"], ["cat", store, "1000", "config.json"]):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([ckptfs.path, *words], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
        os.close(write)
        assert done.stderr == ""


@pytest.mark.parametrize("sig, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_a_verb_with_its_number(mount, store, ckptfs, commit, sig, status):
    (mount / "1").mkdir()
    trees.write(mount / "1/big", bytes(4 << 20))
    commit(mount / "1")
    reader = subprocess.Popen([ckptfs.path, "cat", store, "1", "big"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reader.stdout.read(1) == b"\0"  # from here on the pipe is full
    reader.send_signal(sig)
    assert reader.wait(10) == status
    assert reader.stderr.read() == b""
    reader.stdout.close()
    reader.stderr.close()


def test_nothing_but_the_answer_is_on_stdout(filled, store, ckptfs):
    for words in (["ls", "-v"], ["verify", "-v", "--json"], ["info", "--json", "-v"]):
        out = ckptfs(*words, store).stdout
        assert out.split() == STEPS if words[0] == "ls" else json.loads(out)


# --- Mounts that have died --------------------------------------------------------------------------------------------


@needs_root
def test_a_dead_mount_still_names_its_store_and_can_be_unmounted(ckptfs, scratch, world):
    """The program must not ask a mount that nobody serves; and a name with blanks is one name."""
    store, point = scratch / "a store", scratch / "a mount"
    point.mkdir()
    ckptfs("init", store)
    ckptfs("mount", store, point)
    pid = json.loads((store / "holder.json").read_text())["pid"]
    world.callback(subprocess.run, ["umount", "-l", point], capture_output=True)
    (point / "1").mkdir()
    trees.write(point / "1/.finalize", b"")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: [m["pid"] for m in ckptfs.json("info", store)["mounts"]] == [None], what="the end of the holder")
    assert ckptfs("ls", point).stdout == "1\n"
    assert ckptfs.json("info", point / "1")["name"] == "1"
    assert "dead" in ckptfs("status", point).stdout
    ckptfs("umount", point)
    assert os.listdir(point) == []
