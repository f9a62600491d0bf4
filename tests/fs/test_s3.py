"""A store in a bucket: what one mount saves, another one has, whatever happens to the network, the server and the node between them.

The server is a real one on loopback, and faults are played by a proxy in front of it (tests/servers/). A node is a mount with a work
directory of its own; a test that throws that directory away has only what is in the bucket.
"""

import os
import shutil
import time

import pytest

from servers.schedule import random_schedule
from support import trees
from support.fixtures import FULL
from support.mounting import mounts_below, wait_until
from support.nodes import *  # noqa: F403
from support.nodes import SEEN, Node
from support.object_servers import running_server

pytestmark = pytest.mark.timeout(60)

SECRET = "AWS_SECRET_ACCESS_KEY"


def fill_of_all_kinds(folder):
    """Files of all sizes, an empty one, folders, an empty one, links, modes, times and attributes."""
    trees.fill(folder, seed="kinds")
    trees.write(folder / "model.bin", trees.content("model", 5_000_000))
    trees.write(folder / "one", b"1", 0o600)
    (folder / "nothing").mkdir(mode=0o750)
    os.symlink("../nowhere", folder / "dangling")
    os.link(folder / "model.bin", folder / "params/model.bin")
    os.setxattr(folder / "model.bin", "user.note", b"\x00\xff of the model")
    os.setxattr(folder / "params", "user.note", b"a folder's")
    os.utime(folder / "one", ns=(1, 1_234_567_890_123_456_789))


# --- The main thing -----------------------------------------------------------------------------------------------------------


def test_a_step_is_byte_exact_on_a_node_that_has_nothing_else(node, keys):
    first = node("a", probes=True)
    (first / "1000").mkdir()
    fill_of_all_kinds(first / "1000")
    is_there = first.complete("1000")
    first.wait("1000")
    assert is_there["model.bin"]["nlink"] == 2
    first.umount()
    shutil.rmtree(first.work_dir)
    assert keys("log/") and keys("packs/"), keys()
    second = node("b")
    assert second.listing() == ["1000"]
    assert trees.describe(second / "1000") == is_there
    second.remount()
    assert trees.describe(second / "1000") == is_there


def test_a_second_node_goes_on_where_the_first_was_lost(node):
    first = node("a")
    made = {name: first.save(name) for name in ("1000", "2000")}
    first.wait()
    first.lose()
    second = node("b")
    made["3000"] = second.save("3000")
    second.wait("3000")
    second.umount()
    third = node("c")
    assert {name: trees.describe(third / name) for name in made} == made
    assert os.readlink(third / "latest") == "3000"


def test_files_added_later_and_removed_ones_are_pushed(node, ckptfs):
    first = node("a")
    first.save("1000")
    first.wait("1000")
    trees.write(first / "1000/late.bin", trees.content("late", 300_000))
    os.unlink(first / "1000/config.json")
    is_there = trees.describe(first / "1000")
    assert "late.bin" in is_there and "config.json" not in is_there
    # A removal is an edit one second later (core/save/remove.h).
    wait_until(lambda: "config.json" not in ckptfs("ls", first.work_dir, "1000").stdout, what="the edit")
    first.wait("1000")
    first.lose()
    assert trees.describe(node("b") / "1000") == is_there


def test_a_step_in_a_folder_is_on_another_node(node):
    first = node("a")
    (first / "run").mkdir()
    is_there = first.save("run/step_5")
    first.wait("run/step_5")
    first.lose()
    assert trees.describe(node("b") / "run/step_5") == is_there


def test_a_step_that_is_damaged_here_is_named_and_the_next_ones_go_on(node, ckptfs, fault_proxy):
    fault_proxy.play({"do": "reset-before"})
    first = node("a", fault_proxy.endpoint)
    is_there = first.save("1000")
    ckptfs("seal", first.path, "1000")
    [raw] = first.work_dir.glob("sessions/*/config.json")
    kept = raw.read_bytes()
    raw.write_bytes(bytes(len(kept)))
    next_one = first.save("2000")
    fault_proxy.play()
    first.wait("2000")
    for step in (["1000"], []):
        said = ckptfs("wait", first.path, *step, "--remote", "--timeout", "20s", check=False)
        assert said.returncode == 1 and "1000: it cannot be uploaded" in said.stderr, said
    uploading = ckptfs.json("status", first.path)["uploading"]
    assert uploading["steps"] == 0 and [row["step"] for row in uploading["failed"]] == ["1000"]
    assert "1000 cannot be uploaded" in ckptfs("status", first.path).stdout
    assert ckptfs.json("ls", first.path, "1000")[0] and [r["durable"] for r in ckptfs.json("ls", first.path)] == ["local", "remote"]
    assert "1 of its steps cannot be uploaded" in ckptfs("umount", first.path).stderr
    assert trees.describe(node("b") / "2000") == next_one
    raw.write_bytes(kept)
    again = node("a")  # the next mount tries it anew
    again.wait()
    assert trees.describe(node("c") / "1000") == is_there


def test_init_makes_an_empty_store_in_a_bucket(ckptfs, url, keys, client, s3_server, s3_prefix, scratch, monkeypatch):
    monkeypatch.setenv("CKPTFS_WORK_DIR", str(scratch / "work"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.endpoint)
    client.put_object(Bucket=s3_server.bucket, Key=s3_prefix + "other/log/0000000000000001", Body=b"of a store that lost its head")
    said = ckptfs("init", f"{url}/other", check=False)
    assert said.returncode == 1 and "has objects and is not a store" in said.stderr
    assert ckptfs("init", f"{url}/run", "--set", "trash=1d", check=False).returncode == 2
    assert keys() == ["other/log/0000000000000001"]
    assert "made an empty store" in ckptfs("init", f"{url}/run").stderr
    assert keys() == ["other/log/0000000000000001", "run/store.json"] and not (scratch / "work").exists()
    said = ckptfs("init", f"{url}/run", check=False)
    assert said.returncode == 1 and "is a store already" in said.stderr
    assert ckptfs.json("ls", f"{url}/run") == []


def test_a_later_mount_has_another_endpoint(node, fault_proxy):
    """The server has moved: the new address is said at the next mount."""
    node("a").umount()
    again = node("a", fault_proxy.endpoint)
    again.save("1000")
    again.wait("1000")
    assert fault_proxy.counts()["by_op"].get("PutObject")


# --- Crashes --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["on-its-way", "done"])
@pytest.mark.parametrize("key", ["packs", "log"])
def test_a_push_that_was_killed_goes_on(node, fault_proxy, keys, key, when):
    """Its put reaches the server after its end, or was done and never answered. The step is then in the bucket, and once."""
    first = node("a", fault_proxy.endpoint)
    fault = {"do": "late", "seconds": 1} if when == "on-its-way" else {"do": "stall", "seconds": 1.5, "where": "reply"}
    fault_proxy.play({"op": "PutObject", "key": f"*/{key}/*", "nth": 1, **fault})
    is_there = first.save("1000")
    wait_until(lambda: keys(f"{key}/") if when == "done" else fault_proxy.counts()["by_fault"], what=f"a put of {key}/")
    first.kill9()
    first.start()
    first.wait("1000")
    fault_proxy.settle()
    assert fault_proxy.counts()["by_fault"] == {fault["do"]: 1}
    first.lose()
    second = node("b")
    assert second.listing() == ["1000"]
    assert trees.describe(second / "1000") == is_there


def test_a_node_that_is_lost_before_its_push_ends_leaves_nothing(node, fault_proxy, keys):
    """All packs are in the bucket, the entry is not: nobody sees half of it, and its name is free."""
    fault_proxy.play({"op": "PutObject", "key": "*/log/*", "do": "reset-before"})
    first = node("a", fault_proxy.endpoint)
    first.save("1000")
    wait_until(lambda: keys("packs/") and fault_proxy.counts()["by_fault"], what="a put of the entry")
    first.lose()
    second = node("b")
    assert second.listing() == [] and second.errors() == []
    assert not (second / "1000").exists()
    is_there = second.save("1000", files=3)
    second.wait("1000")
    second.lose()
    assert trees.describe(node("c") / "1000") == is_there


# --- Without the server ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def dead(s3_server):
    """Kills the server; dead.back() and the end of the test start it again."""
    class Dead:
        is_dead = False

        def __call__(self):
            s3_server.kill()
            self.is_dead = True

        def back(self):
            if self.is_dead:
                s3_server.restart()
            self.is_dead = False
    d = Dead()
    yield d
    d.back()


@pytest.mark.timeout(120)
def test_a_save_does_not_wait_for_a_dead_server(node, dead, world, url, scratch, s3_server):
    """It succeeds at once, and one line says so. A node that knows the store can mount it, another one cannot. All is pushed in the end."""
    first = node("a")
    made = {"1000": first.save("1000")}
    first.wait("1000")
    dead()
    began = time.monotonic()
    made["2000"] = first.save("2000")
    assert time.monotonic() - began < 2
    done = refused(world, url, scratch / "mnt-c", f"work_dir={scratch}/work-c,endpoint={s3_server.endpoint}")
    assert "look at the endpoint" in done.stderr
    wait_until(first.errors, 40, "a line in errors")
    began = time.monotonic()
    made["3000"] = first.save("3000")
    assert time.monotonic() - began < 2
    assert len(first.errors()) == 1 and first.store in first.errors()[0], first.errors()
    first.umount()
    first.start()
    assert first.listing() == ["1000", "2000", "3000"]
    assert {name: trees.describe(first / name) for name in made} == made
    dead.back()
    first.wait(timeout=70)
    first.lose()
    second = node("b")
    assert {name: trees.describe(second / name) for name in made} == made


# --- Two nodes ------------------------------------------------------------------------------------------------------------------


def pair_with_a_step(node):
    """What is written so soon after a save is a part of it."""
    first, second = node("a", options=["commit_quiet=1s"]), node("b", options=["commit_quiet=1s"])
    (first / "1000").mkdir()
    trees.write(first / "1000/model.bin", trees.content("model", 3_000_000))
    trees.write(first / "1000/config.json", b"of the save")
    first.complete("1000")
    first.wait("1000")
    wait_until(lambda: "1000" in second.listing(), SEEN, "the step on the other node")
    time.sleep(2)
    return first, second


def test_an_edit_is_seen_where_the_file_was_read_before(node):
    """The kernel there has its pages, its size and its time: of the same length, so that only the bytes tell."""
    first, second = pair_with_a_step(node)
    there = second / "1000/config.json"
    assert there.read_bytes() == b"of the save"
    trees.write(first / "1000/config.json", b"of the edit")
    wait_until(lambda: there.read_bytes() == b"of the edit", SEEN + 10, "the edit on the other node")
    assert second.errors() == []


def test_of_two_edits_the_later_is_there_and_the_other_can_be_had(node, ckptfs):
    first, second = pair_with_a_step(node)
    texts = {b"of the first", b"of the second"}
    trees.write(first / "1000/config.json", b"of the first")
    trees.write(second / "1000/config.json", b"of the second")

    def shown():
        return {(n / "1000/config.json").read_bytes() for n in (first, second)}
    time.sleep(SEEN)
    wait_until(lambda: len(shown()) == 1 and shown() <= texts, SEEN + 20, "one text on both")
    [other] = texts - shown()
    copy = f"1000/config.json.conflict-{os.uname().nodename}"

    def kept():
        """In the conflict copy; or, where an edit was no version yet when the other came, in an older version."""
        versions = ckptfs.json("info", second.work_dir, "1000")["versions"]
        old = {ckptfs("cat", second.work_dir, f"1000@{v['version']}", "config.json").stdout.encode() for v in versions if v["state"] == "old"}
        return old | {(n / copy).read_bytes() for n in (first, second) if (n / copy).exists()}
    wait_until(lambda: other in kept(), SEEN, f"{other!r}, in {kept()}")


def test_two_nodes_see_what_the_other_does(node):
    first, second = node("a"), node("b")
    made = first.save("1000")
    first.wait("1000")
    wait_until(lambda: "1000" in second.listing(), SEEN, "the step on the other node")
    assert trees.describe(second / "1000") == made
    second.save("2000")
    wait_until(lambda: "2000" in first.listing(), SEEN + 5, "the other's step here")
    shutil.rmtree(second / "1000")
    wait_until(lambda: "1000" not in first.listing(), SEEN + 5, "the deletion here")
    assert first.listing() == second.listing() == ["2000"]
    assert first.errors() == second.errors() == []


def test_of_two_steps_of_one_name_none_is_lost(node, fault_proxy):
    """Each node saves it without having seen the other's: the first in the log has the name."""
    first, second = node("a"), node("b", fault_proxy.endpoint)
    fault_proxy.play({"do": "reset-before"})
    theirs = second.save("1000", files=2)
    ours = first.save("1000", files=5)
    first.wait("1000")
    fault_proxy.play()
    conflict = f"1000.conflict-{os.uname().nodename}"
    for n in (first, second):
        wait_until(lambda n=n: conflict in n.listing(), 30, "the step that came second")
        assert n.listing() == ["1000", conflict]
        assert os.readlink(n / "latest") == "1000"
        assert trees.describe(n / "1000") == ours
        assert trees.describe(n / conflict) == theirs


# --- Plain files and folders --------------------------------------------------------------------------------------------------

def read(path):
    try:
        return path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None


def shows(n, path, text, seconds=SEEN + 6):
    wait_until(lambda: read(n / path) == text, seconds, f"{path} with {text!r}, which has {read(n / path)!r}")


def test_plain_files_are_there_when_all_else_is_lost(node):
    first = node("a")
    (first / "run/logs").mkdir(parents=True)
    (first / "run").chmod(0o750)
    trees.write(first / "run/latest.txt", b"step_5\n", 0o640)
    trees.write(first / "run/logs/empty", b"")
    trees.write(first / "run/logs/full", os.urandom(65536))
    os.symlink("logs/full", first / "run/link")
    first.save("run/step_5")
    trees.write(first / "run/large.bin", trees.content("large", 9_000_000))

    def described(n):
        """But for the times of folders, which change with each name in them."""
        rows = trees.describe(n / "run")
        return {path: row | {"mtime_ns": 0} if os.path.isdir(n / "run" / path) and not path.startswith("step_5") else row for path, row in rows.items()}
    is_there = described(first)
    first.wait()
    first.lose()
    second = node("b")
    assert described(second) == is_there
    assert (second / "run").stat().st_mode & 0o7777 == 0o750
    assert second.errors() == []


def test_a_tracker_goes_back_and_forth(node):
    """Each has read it, and has it in the pages of its kernel; each writes it as frameworks do."""
    first, second = node("a"), node("b")
    (first / "latest_checkpointed_iteration.txt").write_text("1000")
    shows(second, "latest_checkpointed_iteration.txt", "1000")
    (second / "latest_checkpointed_iteration.txt").write_text("2000")  # O_TRUNC
    shows(first, "latest_checkpointed_iteration.txt", "2000")
    temp = first / "latest_checkpointed_iteration.txt.tmp"
    temp.write_text("3000")
    temp.rename(first / "latest_checkpointed_iteration.txt")
    shows(second, "latest_checkpointed_iteration.txt", "3000")
    for n in (first, second):
        wait_until(lambda n=n: n.listing() == ["latest_checkpointed_iteration.txt"], SEEN, "the tracker alone")
    assert first.errors() == second.errors() == []


def test_who_sees_a_tracker_sees_its_step(node):
    """And an older step is there as long as the tracker names it."""
    first, second = node("a"), node("b")
    seen = set()

    def look():
        name = read(second / "latest.txt")
        if name:
            seen.add(name)
            assert name in second.listing() or read(second / "latest.txt") != name, (name, second.listing())
    before = None
    for step in range(1, 9):
        name = f"step_{step}"
        first.save(name, files=2)
        (first / "latest.txt").write_text(name)
        if before:
            shutil.rmtree(first / before)
        before = name
        for _ in range(20):
            look()
            time.sleep(0.05)
    wait_until(lambda: look() or read(second / "latest.txt") == "step_8", 30, "the last tracker")
    wait_until(lambda: second.listing() == ["latest.txt", "step_8"], 30, "the last deletion")
    assert len(seen) > 1


def test_names_that_go_and_move_do_so_on_the_other_node(node):
    first, second = node("a"), node("b")
    (first / "run/deep").mkdir(parents=True)
    (first / "run/deep/notes").write_text("one")
    (first / "run/other").write_text("two")
    made = first.save("run/step_1")
    shows(second, "run/deep/notes", "one")
    shows(second, "run/other", "two")
    wait_until(lambda: "step_1" in os.listdir(second / "run"), SEEN, "the step in the folder")
    (second / "run").rename(second / "moved")
    wait_until(lambda: first.listing() == ["moved"], SEEN + 6, "the new name of the folder")
    assert trees.describe(first / "moved/step_1") == trees.describe(second / "moved/step_1") == made
    (first / "moved/other").unlink()
    (first / "moved/deep/notes").rename(first / "moved/notes")
    (first / "moved/deep").rmdir()
    wait_until(lambda: sorted(os.listdir(second / "moved")) == ["notes", "step_1"], SEEN + 6, "what was removed and renamed")
    assert (second / "moved/notes").read_text() == "one"
    assert first.errors() == second.errors() == []


def test_both_nodes_make_the_same_folder(node, fault_proxy):
    first, second = node("a"), node("b", fault_proxy.endpoint)
    fault_proxy.play({"do": "reset-before"})
    for n, name in ((first, "step_1"), (second, "step_2")):
        (n / "checkpoints").mkdir()
        n.save(f"checkpoints/{name}", files=2)
    (second / "checkpoints/notes").write_text("of the second")
    first.wait()
    fault_proxy.play()
    for n in (first, second):
        shows(n, "checkpoints/notes", "of the second", 40)
        wait_until(lambda n=n: sorted(os.listdir(n / "checkpoints")) == ["notes", "step_1", "step_2"], 30, "both steps in one folder")


def test_of_two_contents_both_stay(node, fault_proxy):
    first, second = node("a"), node("b", fault_proxy.endpoint)
    (first / "notes").write_text("of both")
    shows(second, "notes", "of both")
    fault_proxy.play({"do": "reset-before"})
    (second / "notes").write_text("of the second")
    (first / "notes").write_text("of the first")
    first.wait()
    fault_proxy.play()
    conflict = f"notes.conflict-{os.uname().nodename}"
    for n in (first, second):
        shows(n, conflict, "of the second", 40)
        assert (n / "notes").read_text() == "of the first"
    assert any("notes" in line for line in second.errors())


def test_a_file_that_is_being_written_is_not_taken_away(node):
    first, second = node("a"), node("b")
    (first / "train.log").write_text("line 1\n")
    shows(second, "train.log", "line 1\n")
    with open(second / "train.log", "a") as log:
        (first / "train.log").write_text("of the first\n")
        first.wait()
        time.sleep(SEEN)
        log.write("line 2\n")
    shows(second, "train.log", "of the first\n")
    shows(second, f"train.log.conflict-{os.uname().nodename}", "line 1\nline 2\n")
    shows(first, f"train.log.conflict-{os.uname().nodename}", "line 1\nline 2\n")


# --- Steps that another node has saved ---------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(node):
    """A node that has step 1000 from the bucket alone."""
    first = node("a")
    is_there = first.save("1000")
    first.wait("1000")
    first.lose()
    second = node("b")
    assert trees.describe(second / "1000") == is_there
    return second


def test_a_step_of_another_node_is_deleted_renamed_and_pinned_here(elsewhere, node, ckptfs):
    ckptfs("pin", elsewhere.path, "1000")
    os.rename(elsewhere / "1000", elsewhere / "5000")
    elsewhere.wait()
    third = node("c")
    assert third.listing() == ["5000"] and ckptfs.json("info", third.path, "5000")["pinned"]
    ckptfs("unpin", third.path, "5000")
    shutil.rmtree(third / "5000")
    assert third.listing() == []
    third.wait()
    wait_until(lambda: elsewhere.listing() == [], SEEN, "what was done there")


def test_a_step_of_another_node_is_undeleted(elsewhere, ckptfs):
    is_there = trees.describe(elsewhere / "1000")
    ckptfs("rm", elsewhere.path, "1000")
    assert elsewhere.listing() == []
    ckptfs("undelete", elsewhere.path, "1000")
    assert trees.describe(elsewhere / "1000") == is_there


def test_a_file_is_added_to_a_step_of_another_node(elsewhere, node):
    trees.write(elsewhere / "1000/late.bin", b"late")
    is_there = trees.describe(elsewhere / "1000")
    elsewhere.wait("1000")
    elsewhere.lose()
    assert trees.describe(node("c") / "1000") == is_there


def test_a_step_of_another_node_is_verified(elsewhere, ckptfs):
    ckptfs("verify", "--read-data", elsewhere.path, "1000")


def test_a_step_of_another_node_is_warmed(elsewhere, ckptfs):
    is_there = trees.describe(elsewhere / "1000")
    ckptfs("warm", elsewhere.path, "1000")
    assert trees.describe(elsewhere / "1000") == is_there


def test_a_read_only_mount_shows_the_bucket(elsewhere, node):
    is_there = trees.describe(elsewhere / "1000")
    assert trees.describe(node("c", options=["ro"]) / "1000") == is_there


# --- What is refused ----------------------------------------------------------------------------------------------------------


def refused(world, url, path, options):
    """The mount ends with 1 and says why: one line, and perhaps one of what to do."""
    path.mkdir(exist_ok=True)
    done = world.program("mount", url, path, "-o", options, check=False, timeout=40)
    if mounts_below(path):
        world.program("umount", "--now", "--force", path)
        pytest.fail(f"{url} was mounted")
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and done.stdout == "", done
    assert lines[0].startswith(f"ckptfs: {url}: ") and len(lines) <= 2 and all(line.startswith("hint: ") for line in lines[1:]), done.stderr
    return done


@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", SECRET])
def test_wrong_keys_are_refused_in_one_line(world, url, scratch, s3_server, monkeypatch, variable):
    monkeypatch.setenv(variable, "WRONGWRONGWRONGWRONG")
    done = refused(world, url, scratch / "mnt", f"work_dir={scratch}/work,endpoint={s3_server.endpoint}")
    assert "Permission denied" in done.stderr and "credentials" in done.stderr
    assert "WRONGWRONG" not in done.stderr or variable != SECRET


def test_a_bucket_that_is_missing_is_named_in_one_line(world, scratch, s3_server):
    done = refused(world, "s3://no-such-bucket/run", scratch / "mnt", f"work_dir={scratch}/work,endpoint={s3_server.endpoint}")
    assert "bucket" in done.stderr.removeprefix("ckptfs: s3://no-such-bucket/run: "), done.stderr
    assert not (scratch / "work/store.json").exists()


def test_a_read_only_mount_makes_no_store(world, url, scratch, s3_server, keys):
    done = refused(world, url, scratch / "mnt", f"ro,work_dir={scratch}/work,endpoint={s3_server.endpoint}")
    assert "there is no store" in done.stderr
    assert keys() == []


def test_a_work_directory_of_another_url_is_refused(node, world, url, scratch, s3_server):
    first = node("a")
    first.umount()
    done = refused(world, url + "-other", scratch / "mnt", f"work_dir={first.work_dir},endpoint={s3_server.endpoint}")
    assert "that of another store" in done.stderr


def test_a_server_that_ignores_conditions_is_refused(world, scratch, monkeypatch):
    with running_server("rclone-s3") as server:
        for name, value in server.settings.items():
            monkeypatch.setenv(name, value)
        done = refused(world, f"s3://{server.bucket}/run", scratch / "mnt", f"work_dir={scratch}/work,endpoint={server.endpoint}")
        assert "condition" in done.stderr or "taken" in done.stderr, done.stderr
        assert not (scratch / "work/store.json").exists()


# --- Secrets ----------------------------------------------------------------------------------------------------------------


def test_a_secret_stands_nowhere(node, fault_proxy, s3_server):
    """Not in the log at its most talkative, in the work directory, nor in what the mount shows, also after a refusal."""
    secret = s3_server.settings[SECRET].encode()
    first = node("a", fault_proxy.endpoint, ["log_level=debug"])
    fault_proxy.play({"op": "PutObject", "key": "*/log/*", "nth": 1, "do": "status", "status": 403})
    first.save("1000")
    wait_until(first.errors, what="a line about the refusal")
    first.wait("1000")
    assert len(first.errors()) == 1 and "AccessDenied" in first.errors()[0], first.errors()
    shown = {p.name: p.read_bytes() for p in (first / ".ckptfs").iterdir() if p.is_file()}
    assert shown.keys() >= {"status", "status.json", "errors"}
    assert first.log()
    first.umount()
    written = first.all_files()
    assert first.work_dir / "store.json" in written
    for name, data in {"the log": first.log().encode(), **shown, **written}.items():
        assert secret not in data, name


# --- Random faults --------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(20 if FULL else 3))
def test_every_save_gets_through_a_random_schedule(node, fault_proxy, seed):
    """The rules of a schedule end, so that whoever goes on succeeds. Both nodes are behind it, the last one is not."""
    schedule = random_schedule(seed, 16, ops=["PutObject", "GetObject", "HeadObject", "ListObjectsV2"])
    first = node("a", fault_proxy.endpoint)
    second = node("b", fault_proxy.endpoint)
    fault_proxy.play(**schedule)
    made = {}
    for n, name in ((first, "1000"), (second, "1500"), (first, "2000")):
        made[name] = n.save(name, size=100_000)
    first.wait(timeout=90)
    second.wait(timeout=90)
    fault_proxy.settle()
    first.lose()
    second.lose()
    third = node("c")
    assert {name: trees.describe(third / name) for name in made} == made
