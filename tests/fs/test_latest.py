"""`latest`: the link to the newest step of a folder, that no listing shows; and the verb of that name."""

import errno
import json
import os
import shutil
import stat
import subprocess

import pytest

from support import checkpoint_files, trees
from support.fixtures import all_modes, both_modes, needs_root
from support.mounting import Mount

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def save(mount, commit):
    """Makes and completes a step of one file: save("run/step_1")."""
    def make(name):
        (mount / name).mkdir(parents=True)
        trees.write(mount / name / "model.bin", name.encode())
        commit(mount / name)
    return make


def refused(call, *errors):
    with pytest.raises(OSError) as e:
        call()
    assert e.value.errno in errors, e.value


def newest(folder):
    """What `latest` says there; None: there is none."""
    try:
        return os.readlink(folder / "latest")
    except FileNotFoundError:
        return None


# --- What it resolves to ----------------------------------------------------------------------------------------------


@all_modes
def test_latest_is_the_newest_commit_right_after_each(mount, save, agent):
    other = agent()
    assert newest(mount) is None
    for name in ("2000", "3000", "1000"):
        save(name)
        assert newest(mount) == name == other.run("os.readlink(path)", path=str(mount / "latest"))
        assert (mount / "latest/model.bin").read_bytes() == name.encode()
        assert other.run("open(path).read()", path=str(mount / "latest/model.bin")) == name
    mount.remount()
    assert newest(mount) == "1000"


@pytest.mark.parametrize("options", [["latest_by=step"]])
def test_latest_by_step_is_the_highest_number(mount, save):
    for name, want in (("2000", "2000"), ("3000", "3000"), ("1000", "3000")):
        save(name)
        assert newest(mount) == want
    mount.remount(["latest_by=commit"])
    assert newest(mount) == "1000"


def test_steps_with_a_number_come_first(mount, save):
    save("tmp-checkpoint-x")  # a temporary name without a number, completed by its marker
    assert newest(mount) == "tmp-checkpoint-x"
    save("1000")
    save("tmp-checkpoint-y")
    assert newest(mount) == "1000"


@both_modes
def test_each_folder_has_its_own(mount, save):
    save("a/step_1")
    save("a/b/step_3")
    save("a/b/step_2")
    (mount / "logs").mkdir()
    for folder, want in ((".", None), ("a", "step_1"), ("a/b", "step_2"), ("logs", None), ("a/step_1", None)):
        assert newest(mount / folder) == want
    os.rename(mount / "a", mount / "c")
    assert newest(mount / "c/b") == "step_2" and (mount / "c/b/latest/model.bin").read_bytes() == b"a/b/step_2"
    os.rename(mount / "c/b/step_3", mount / "step_3")
    assert newest(mount) == "step_3"


@both_modes
@pytest.mark.parametrize("how", ["rm -r", "ckptfs rm"])
def test_a_step_on_its_way_out_is_not_latest(mount, save, ckptfs, store, how):
    for name in ("1000", "2000", "3000"):
        save(name)
    if how == "rm -r":
        os.listdir(mount / "3000")  # whoever opens the directory and removes what is in it may be about to remove it whole
        os.unlink(mount / "3000/model.bin")
        assert newest(mount) == "2000", "it is being removed"
        os.rmdir(mount / "3000")
    else:
        ckptfs("rm", store, "3000")
    assert newest(mount) == "2000"
    ckptfs("undelete", store, "3000")
    assert newest(mount) == "3000"
    for name in ("1000", "2000", "3000"):
        shutil.rmtree(mount / name)
    assert newest(mount) is None and not os.path.lexists(mount / "latest")


def test_latest_is_found_past_staged_and_committed_ones_by_rename(mount, save, stage):
    save("1000")
    stage("2000")
    stage("3000.orbax-checkpoint-tmp")
    assert newest(mount) == "1000"
    os.rename(mount / "3000.orbax-checkpoint-tmp", mount / "3000")
    assert newest(mount) == "3000"


def test_attributes_of_the_link(mount, save):
    save("run/step_1000")
    link, folder = os.lstat(mount / "run/latest"), os.stat(mount / "run")
    assert stat.S_ISLNK(link.st_mode) and link.st_size == len("step_1000") and link.st_nlink == 1
    assert (link.st_uid, link.st_gid) == (folder.st_uid, folder.st_gid)
    assert os.stat(mount / "run/latest").st_ino == os.stat(mount / "run/step_1000").st_ino != link.st_ino
    assert os.listxattr(mount / "run/latest", follow_symlinks=False) == []
    for change in (lambda: os.utime(mount / "run/latest", (1, 1), follow_symlinks=False), lambda: os.link(mount / "run/latest", mount / "run/other", follow_symlinks=False),
                   lambda: os.setxattr(mount / "run/latest", "user.x", b"", follow_symlinks=False)):
        refused(change, errno.EPERM, errno.EACCES)


# --- Listings and copies ----------------------------------------------------------------------------------------------


@both_modes
def test_latest_is_in_no_listing_and_in_no_copy(mount, save, scratch):
    save("1000")
    save("run/step_1")
    names = ["1000", "1000/model.bin", "run", "run/step_1", "run/step_1/model.bin"]
    assert os.listdir(mount.path) == ["run", "1000"] and "latest" not in [e.name for e in os.scandir(mount / "run")]
    subprocess.run(["cp", "-r", mount.path, scratch / "copy"], check=True)
    assert sorted(str(p.relative_to(scratch / "copy")) for p in (scratch / "copy").rglob("*")) == names
    if shutil.which("rsync"):
        subprocess.run(["rsync", "-a", f"{mount.path}/", scratch / "synced"], check=True)
        assert sorted(str(p.relative_to(scratch / "synced")) for p in (scratch / "synced").rglob("*")) == names


@both_modes
@pytest.mark.parametrize("options", [["show_latest"]])
def test_show_latest_lists_it_and_copies_have_a_link(mount, save, scratch):
    assert mount.listing() == []
    (mount / "run").mkdir()
    save("run/step_1")
    save("run/step_2")
    assert mount.listing() == ["run"] and mount.listing("run") == ["latest", "step_1", "step_2"]
    [e] = [e for e in os.scandir(mount / "run") if e.name == "latest"]
    assert e.is_symlink() and e.inode() == os.lstat(mount / "run/latest").st_ino
    subprocess.run(["cp", "-r", mount / "run", scratch / "copy"], check=True)
    assert os.readlink(scratch / "copy/latest") == "step_2"
    os.symlink("step_1", mount / "run/mine")
    os.rename(mount / "run/mine", mount / "run/latest")
    assert mount.listing("run") == ["latest", "step_1", "step_2"], "once"


@pytest.mark.parametrize("options", [["show_latest"]])
@pytest.mark.parametrize("remover", ["rm", "rmtree"])
def test_folder_with_a_listed_link_can_be_removed(mount, save, remover):
    save("run/step_1")
    save("run/step_2")
    if remover == "rm":
        subprocess.run(["rm", "-r", mount / "run"], check=True)
    else:
        shutil.rmtree(mount / "run")
    assert mount.listing() == []


# --- A latest of the user's -------------------------------------------------------------------------------------------


def own_link(path):
    os.symlink("step_1000", path)


def own_file(path):
    trees.write(path, b"step_1000")


def own_folder(path):
    os.mkdir(path)


OWN = pytest.mark.parametrize("make", [own_link, own_file, own_folder])


@both_modes
@OWN
def test_a_users_latest_that_was_there_before_wins(mount, save, make):
    make(mount / "latest")
    before = trees.describe(mount / "latest") if make is not own_link else os.readlink(mount / "latest")
    save("1000")
    save("2000")
    for _ in range(2):
        now = trees.describe(mount / "latest") if make is not own_link else os.readlink(mount / "latest")
        assert now == before and "latest" in mount.listing()
        mount.remount()


@both_modes
def test_a_users_latest_may_be_renamed_over_ours(mount, save):
    save("1000")
    save("2000")
    subprocess.run(["ln", "-sfn", "1000", mount / "latest"], check=True)
    assert newest(mount) == "1000" and mount.listing() == ["1000", "2000", "latest"]
    subprocess.run(["ln", "-sfn", "2000", mount / "latest"], check=True)
    assert newest(mount) == "2000"
    save("3000")
    assert newest(mount) == "2000", "it is the user's now"
    trees.write(mount / "latest.tmp", b"global step 5")
    os.replace(mount / "latest.tmp", mount / "latest")
    assert (mount / "latest").read_bytes() == b"global step 5"
    mount.remount()
    assert (mount / "latest").read_bytes() == b"global step 5"


@both_modes
@OWN
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_who_removes_latest_has_the_name_free_until_the_next_commit(mount, save, make, first):
    latest = mount / "run/latest"
    remove = os.rmdir if make is own_folder else os.remove
    (mount / "run").mkdir()
    if first == "theirs":  # it was there before the commit, so ours never was
        make(latest)
    save("run/step_1000")
    for n in range(3):
        (os.remove if n == 0 and first == "ours" else remove)(latest)
        assert not os.path.lexists(latest), "ours must not come up before they made the next"
        refused(lambda: os.remove(latest), errno.ENOENT)
        make(latest)
        assert "latest" in mount.listing("run")
    remove(latest)
    assert not os.path.lexists(latest)
    save("run/step_2000")
    assert newest(mount / "run") == "step_2000"


@both_modes
@OWN
def test_a_latest_of_ones_own_is_made_where_ours_is(mount, save, make):
    """mkdir, symlink and open(O_CREAT) find no `latest`; all else does, also such a call that leads over it."""
    save("run/step_1000")
    trees.write(mount / "run/latest/late", b"over the link")
    os.mkdir(mount / "run/latest/latest")
    assert sorted(os.listdir(mount / "run/step_1000")) == ["late", "latest", "model.bin"]
    make(mount / "run/latest")
    for _ in range(2):
        assert mount.listing("run") == ["latest", "step_1000"]
        with pytest.raises(FileExistsError):
            os.mkdir(mount / "run/latest")
        mount.remount()
    save("run/step_2000")
    assert mount.listing("run") == ["latest", "step_1000", "step_2000"]


@pytest.mark.parametrize("words", [["mkdir", "latest"], ["ln", "-s", "1000", "latest"], ["touch", "latest"],
                                   ["sh", "-c", "echo 1000 > latest"]], ids=" ".join)
def test_programs_make_a_latest_of_their_own(mount, save, words):
    save("1000")
    assert newest(mount) == "1000"
    subprocess.run(words, cwd=mount.path, check=True)
    assert mount.listing() == ["1000", "latest"]
    assert (mount / "1000/model.bin").read_bytes() == b"1000"


def test_rm_and_mv_of_latest(mount, save):
    save("1000")
    subprocess.run(["rm", mount / "latest"], check=True)
    subprocess.run(["ln", "-s", "1000", mount / "latest"], check=True)
    assert mount.listing() == ["1000", "latest"]
    os.remove(mount / "latest")
    save("2000")
    subprocess.run(["mv", "-T", mount / "latest", mount / "before"], check=True)
    assert os.readlink(mount / "before") == "2000" and newest(mount) is None
    save("3000")
    os.rename(mount / "before", mount / "latest")
    assert newest(mount) == "2000"
    os.rename(mount / "latest", mount / "before")
    assert newest(mount) is None, "ours does not come up under what was moved away"
    refused(lambda: os.rename(mount / "latest", mount / "x"), errno.ENOENT)
    assert (mount / "2000/model.bin").read_bytes() == b"2000"


def test_ours_is_a_link_to_a_directory_for_who_would_write_it(mount, save):
    save("1000")
    refused(lambda: os.open(mount / "latest", os.O_WRONLY), errno.EISDIR)
    refused(lambda: os.rmdir(mount / "latest"), errno.ENOTDIR)
    assert newest(mount) == "1000"


@both_modes
def test_deepspeed_has_the_name_for_itself(mount, save):
    (mount / "global_step10").mkdir()
    trees.write(mount / "global_step10/model.pt", b"10")
    assert newest(mount) is None
    with open(mount / "latest", "w") as f:
        f.write("global_step10")
    assert (mount / "latest").read_text() == "global_step10"
    save("run/global_step1")
    save("run/step_2")
    assert newest(mount / "run") is None
    with open(mount / "run/latest", "w") as f:
        f.write("global_step1")
    save("other/step_1")
    (mount / "other/global_step2").mkdir()
    assert newest(mount / "other") is None, "staged ones count, too"
    os.rmdir(mount / "other/global_step2")
    assert newest(mount / "other") == "step_1"


# --- Read-only --------------------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("beside", [True, False], ids=["beside one that writes", "alone"])
def test_read_only_mount_has_it_and_keeps_it(world, mount, save, store, scratch, beside):
    save("1000")
    save("run/step_1")
    if not beside:
        mount.umount()
    m = Mount.new(world, store, scratch / "ro", options=["ro", "show_latest"])
    assert newest(m) == "1000" and newest(m / "run") == "step_1" and m.listing() == ["1000", "latest", "run"]
    refused(lambda: os.remove(m / "latest"), errno.EROFS)
    refused(lambda: os.symlink("1000", m / "run/x"), errno.EROFS)
    assert newest(m) == "1000"
    if beside:
        save("2000")
        save("run/step_2")
        assert newest(m) == "2000" and newest(m / "run") == "step_2"


# --- Many -------------------------------------------------------------------------------------------------------------


def test_readers_follow_it_while_steps_come_and_go(mount, save, agent):
    save("0")
    reader = agent()
    reader.run("""
import threading
bad, stop, seen = [], [], set()
def read():
    while not stop:
        name = os.readlink(path)
        try:
            data = open(path + "/model.bin").read()
        except OSError as e:
            bad.append(repr(e))
            continue
        seen.add(name)
        if int(data) < int(name): bad.append((name, data))
t = threading.Thread(target=read); t.start()""", path=str(mount / "latest"))
    for n in range(1, 40):
        save(str(n))
        if n > 3:
            shutil.rmtree(mount / str(n - 3))
    bad, seen = reader.run("stop.append(1); t.join(); (bad[:5], len(seen))")
    assert bad == [] and seen > 1


# --- The verb ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "unmounted"])
def test_verb_prints_one_name(mount, save, ckptfs, store, mounted):
    for name in ("3000", "1000", "2000", "run/step_9", "run/step_4"):
        save(name)
    if not mounted:
        mount.umount()
    for words, want in (([], "2000"), (["--by", "commit"], "2000"), (["--by", "step"], "3000"), (["--by", "timestamp"], "2000"), (["--by=mtime"], "2000"),
                        (["run"], "run/step_4"), (["--by", "step", "run"], "run/step_9"), (["--quiet"], "2000")):
        done = ckptfs("latest", store, *words)
        assert (done.stdout, done.stderr) == (want + "\n", ""), words
        assert ckptfs.json("latest", store, *words) == {"name": want}
    if mounted:
        assert ckptfs("latest", mount / "run").stdout == ckptfs("latest", cwd=mount / "run").stdout == "run/step_4\n"
        assert ckptfs("latest", cwd=mount.path).stdout == "2000\n"


def test_latest_of_a_verb_is_no_step_that_is_being_removed(mount, save, ckptfs, store):
    for name in ("1000", "2000", "3000"):
        save(name)
    os.listdir(mount / "3000")
    os.unlink(mount / "3000/model.bin")
    for word, name in (("latest", "2000"), ("latest~1", "1000")):
        assert ckptfs.json("info", store, word)["name"] == name
    assert ckptfs("info", store, "latest~2", check=False).returncode == 1
    trees.write(mount / "2000/model.bin", b"once more")  # reopened: not listed, either
    assert ckptfs.json("info", store, "latest")["name"] == "1000"


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "unmounted"])
def test_verbs_go_by_the_setting_of_the_store(mount, save, ckptfs, store, mounted):
    for name in ("3000", "1000", "2000", "run/step_9", "run/step_4"):
        save(name)
    mount.umount()
    ckptfs("config", store, "latest_by=step")
    if mounted:
        mount.remount()
        assert newest(mount) == "3000"
    assert ckptfs("latest", store).stdout == "3000\n" and ckptfs("latest", store, "run").stdout == "run/step_9\n"
    assert ckptfs("latest", store, "--by", "commit").stdout == "2000\n"
    for word, name in (("latest", "3000"), ("latest~1", "2000"), ("run/latest", "run/step_9")):
        assert ckptfs.json("info", store, word)["name"] == name


def test_verb_by_timestamp_and_mtime(mount, save, ckptfs, store):
    for name, mtime in (("1000", 3000), ("2000", 4000), ("3000", 2000)):
        (mount / name).mkdir()
        trees.write(mount / name / "model.bin", name.encode())
        os.utime(mount / name, (mtime, mtime))
        trees.write(mount / name / ".finalize", b"")
    trees.write(mount / "1000/.finalize", b'{"metrics":{"loss":1}}')  # a new version of an old step makes it no newer
    for by, want in (("commit", "3000"), ("timestamp", "3000"), ("mtime", "2000")):
        assert ckptfs("latest", store, "--by", by).stdout == want + "\n", by


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "unmounted"])
def test_verbs_by_timestamp_go_by_the_word_of_eformers_file(mount, ckptfs, store, mounted):
    """It sorts by the timestamp, then the step; what cannot be read is the oldest."""
    for name, said in (("run-100", "2199-01-01T10:00:00.000002"), ("run-200", "2199-01-01T10:00:00.000001"), ("run-300", "now"), ("run-400", None)):
        (mount / name).mkdir()
        trees.write(mount / name / "tensorstore_index.json", b"{}")
        trees.write(mount / name / "model.safetensors", checkpoint_files.safetensors())
        step = int(name[4:])
        if said:
            trees.write(mount / name / "metadata.json", json.dumps({"step": step, "timestamp": said, "is_temporary": False}).encode())
        else:
            trees.write(mount / name / ".finalize", b"")
    if not mounted:
        mount.umount()
    assert [ckptfs("latest", store, "--by", by).stdout for by in ("timestamp", "commit")] == ["run-100\n", "run-400\n"]
    assert ckptfs.json("resolve", "--run", store, "--by", "timestamp")["step"] == "run-100"
    for name, newest in (("run-100", "run-200"), ("run-200", "run-400"), ("run-400", "run-300")):
        ckptfs("rm", store, name, "--yes")
        assert ckptfs("latest", store, "--by", "timestamp").stdout == newest + "\n"


def test_verb_without_steps_in_the_root_has_the_newest_of_all(save, ckptfs, store):
    save("a/step_1")
    save("b/step_2")
    save("a/step_3")
    assert ckptfs("latest", store).stdout == "a/step_3\n"


def test_verb_says_that_there_is_none(mount, save, stage, ckptfs, store):
    stage("1000")
    (mount / "run").mkdir()
    for words in ([], ["run"], ["nothing"], ["--by", "tracker"]):
        none = ckptfs("latest", store, *words, check=False)
        told = 1 if words in (["run"], ["nothing"]) else 2  # of all folders: that a step is not complete yet
        assert (none.returncode, none.stdout, none.stderr.count("\n")) == (1, "", told), words
        quiet = ckptfs("latest", store, *words, "--quiet", check=False)
        assert (quiet.returncode, quiet.stdout, quiet.stderr) == (1, "", "")
        told = ckptfs("latest", store, *words, "--json", check=False)
        assert (told.returncode, json.loads(told.stdout)) == (1, {"name": None})
    wrong = ckptfs("latest", store, "--by", "tracks", check=False)
    assert wrong.returncode == 2 and "tracker" in wrong.stderr
    assert ckptfs("latest", store, "a", "b", check=False).returncode == 2


@pytest.mark.parametrize("file, text, want", [
    ("latest_checkpointed_iteration.txt", "100", "iter_0000100"), ("latest_checkpointed_iteration.txt", "release\n", "release"),
    ("latest_checkpointed_iteration.txt", "7", "global_step_7"), ("latest_checkpointed_iteration.txt", "200", None), ("latest_checkpointed_iteration.txt", "300", None),
    ("latest_checkpointed_iteration.txt", "100 of 200", None), ("latest_checkpointed_iteration.txt", "-100", None), ("latest_checkpointed_iteration.txt", "", None),
    ("latest", "global_step5\n", "global_step5"), ("latest", "iter_0000200", None), ("latest", "../run/global_step5", None), ("latest", "x" * 5000, None)])
def test_verb_by_tracker(mount, save, ckptfs, store, file, text, want):
    (mount / "run").mkdir()
    for name in ("iter_0000100", "global_step_7", "global_step5", "iter_0000900"):
        save(f"run/{name}")
    (mount / "run/release.partial_save").mkdir()
    os.rename(mount / "run/release.partial_save", mount / "run/release")
    (mount / "run/iter_0000200").mkdir()  # staged
    trees.write(mount / "run" / file, text.encode())
    done = ckptfs("latest", store, "run", "--by", "tracker", check=False)
    assert (done.returncode, done.stdout) == ((0, f"run/{want}\n") if want else (1, ""))


# --- Options ----------------------------------------------------------------------------------------------------------


def test_options_are_checked(ckptfs, store, scratch):
    (scratch / "mnt").mkdir()
    for option, word in (("latest_by=time", "commit or step"), ("latest_by", "needs a value"), ("show_latest=1", "yes or no")):
        done = ckptfs("mount", store, scratch / "mnt", "-o", option, check=False)
        assert done.returncode == 2 and word in done.stderr, done.stderr


# --- Changes through it -----------------------------------------------------------------------------------------------

THROUGH = {
    "rewrite": "open(path, 'w').write('new')",
    "append": "open(path, 'a').write('new')",
    "r+": "f = open(path, 'r+'); f.write('new'); f.close()",
    "truncate": "os.truncate(path, 1)",
    "shell": "import subprocess; subprocess.run(['sh', '-c', 'echo new > ' + path], check=True)",
}


@both_modes
@pytest.mark.parametrize("act", THROUGH)
def test_what_is_written_through_the_link_changes_the_step_that_it_led_to_and_no_other(mount, save, agent, act):
    names = ["1000", "2000", "3000"]
    for name in names:
        save(name)
        trees.write(mount / name / "second.bin", name.encode())
    for file in ("model.bin", "second.bin"):  # another process goes on with the same step
        agent().run(THROUGH[act], path=str(mount / "latest" / file))
        assert (mount / "3000" / file).read_bytes() != b"3000"
        assert newest(mount) == "3000", "it leads to the step that is changed through it"
    for name in names[:2]:
        assert name in mount.listing()
        for file in ("model.bin", "second.bin"):
            assert (mount / name / file).read_bytes() == name.encode()


@both_modes
def test_a_step_that_is_changed_by_its_name_is_not_the_newest_meanwhile(mount, save, agent):
    for name in ("1000", "2000"):
        save(name)
    reader = agent()
    assert reader.run("open(path).read()", path=str(mount / "latest/model.bin")) == "2000"
    agent().run("open(path, 'w').write('new')", path=str(mount / "2000/model.bin"))
    assert newest(mount) == "1000"
    assert reader.run("open(path).read()", path=str(mount / "latest/model.bin")) == "1000"
