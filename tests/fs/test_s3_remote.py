"""ckptfs remote: the object store behind a store, and what waits to be pushed there."""

import json
import os
import subprocess

import pytest

from support import trees
from support.mounting import wait_until
from support.nodes import *  # noqa: F403
from support.nodes import SEEN
from support.schema import mismatch

pytestmark = pytest.mark.timeout(240)

OFFLINE = {"do": "reset-before"}


@pytest.fixture
def show(ckptfs):
    def run(store):
        said = ckptfs.json("remote", "show", store)
        assert mismatch(said, "remote") is None, f"{mismatch(said, 'remote')}\n{said}"
        return said
    return run


def damage(n, name, ckptfs):
    """A file of the step has other bytes than were sealed."""
    ckptfs("seal", n.path, name)
    [raw] = n.work_dir.glob("sessions/*/config.json")
    raw.write_bytes(bytes(raw.stat().st_size))


def names(rows):
    return [(row["kind"], row["step"] or row["path"]) for row in rows]


def test_the_queue_is_shown_with_what_it_waits_for(node, show, fault_proxy, ckptfs, url):
    n = node("a", endpoint=fault_proxy.endpoint)
    n.save("1000")
    n.wait()
    said = show(n.path)
    assert (said["url"], said["state"], said["since"], said["cause"]) == (url, "online", None, None)
    assert said["options"] == [f"endpoint={fault_proxy.endpoint}"] and said["work_dir"] == str(n.work_dir)
    assert said["position"] > 0 and said["queue"] == said["dropped"] == [] and said["complete"]

    fault_proxy.play(OFFLINE)
    saved = n.save("2000")
    trees.write(n / "notes", b"2000\n")
    os.rename(n / "1000", n / "1001")
    wait_until(lambda: show(n.path)["state"] == "offline", timeout=60, what="that the server does not answer")
    said = show(n.path)
    assert names(said["queue"]) == [("save", "2000"), ("write", "notes"), ("rename", "1001")]
    step, file, _ = said["queue"]
    assert step["bytes"] == sum(os.stat(n / "2000" / path).st_size for path in saved if os.path.isfile(n / "2000" / path))
    assert file["bytes"] == 5 and step["since"] and file["since"]
    assert {(row["state"], row["waits_for"]) for row in said["queue"]} == {("waiting", "the object store")}
    assert said["cause"] and said["since"]
    text = ckptfs("remote", "show", n.path).stdout
    assert f"url       {url}\n" in text and "offline since" in text and "queue     3 operations" in text

    done = ckptfs("remote", "sync", "--timeout", "2s", n.path, check=False)
    assert done.returncode == 1 and "the time is over" in done.stderr, done.stderr
    n.umount()
    said = show(n.work_dir)
    assert names(said["queue"]) == [("save", "2000"), ("rename", "1001"), ("write", "notes")] and said["state"] == "offline"

    fault_proxy.play()
    said = ckptfs("remote", "sync", n.work_dir)
    assert said.stderr == ""
    said = show(n.work_dir)
    assert (said["state"], said["queue"]) == ("online", [])


def test_sync_pushes_and_reads_now(node, ckptfs, show):
    a, b = node("a"), node("b")
    a.save("1000")
    ckptfs("remote", "sync", "--timeout", "60s", a.path)
    assert show(a.path)["queue"] == []
    ckptfs("remote", "sync", "--timeout", "60s", b.path)
    assert b.listing() == ["1000"], "without the two seconds until the next look"
    b.umount()
    a.save("2000")
    ckptfs("remote", "sync", "--timeout", "60s", a.path)
    ckptfs("remote", "sync", "--timeout", "60s", b.work_dir)
    assert ckptfs("ls", b.work_dir).stdout.split() == ["1000", "2000"]


def test_a_step_that_was_dropped_stays_on_its_node_alone(node, show, fault_proxy, ckptfs):
    a, b = node("a", endpoint=fault_proxy.endpoint), node("b")
    fault_proxy.play(OFFLINE)
    saved = a.save("1000")
    trees.write(a / "latest", b"1000\n")
    done = ckptfs("remote", "drop", a.path, "1000", check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and "--yes" in done.stderr, done.stderr
    assert names(show(a.path)["dropped"]) == []
    ckptfs("remote", "drop", "--yes", a.path, "1000")
    assert names(show(a.path)["dropped"]) == [("save", "1000")]
    done = ckptfs("remote", "drop", "--yes", a.path, "1000", check=False)
    assert done.returncode == 1 and "not in the queue any more" in done.stderr, done.stderr
    fault_proxy.play()
    ckptfs("remote", "sync", a.path)
    said = show(a.path)
    assert [(row["path"], row["state"], row["waits_for"]) for row in said["queue"]] == [("latest", "held", "a step saved after 1000, which it may name")]
    ckptfs("wait", "--remote", a.path)
    done = ckptfs("wait", "--remote", a.path, "1000", check=False)
    assert done.returncode == 1 and "taken out of the queue" in done.stderr, done.stderr
    ckptfs("remote", "sync", b.path)
    assert b.listing() == [] and not (b / "latest").exists(), "a tracker whose step is not there"

    a.remount()
    assert a.listing() == ["1000", "latest"] and trees.describe(a / "1000") == saved
    ckptfs("remote", "sync", a.path)
    assert names(show(a.path)["dropped"]) == [("save", "1000")]
    a.save("2000")
    trees.write(a / "latest", b"2000\n")
    ckptfs("remote", "sync", a.path)
    assert show(a.path)["queue"] == []
    ckptfs("remote", "sync", b.path)
    assert b.listing() == ["2000", "latest"] and (b / "latest").read_text() == "2000\n"

    ckptfs("pin", a.path, "1000")
    ckptfs("remote", "sync", a.path)
    assert show(a.path)["dropped"] == []
    ckptfs("remote", "sync", b.path)
    assert trees.describe(b / "1000") == saved


def test_sync_ends_while_a_step_is_open_for_change(node, show, ckptfs, fault_proxy):
    a = node("a", endpoint=fault_proxy.endpoint, options=("commit_quiet=4s",))
    fault_proxy.play(OFFLINE)
    a.save("1000")
    with open(a / "1000/config.json", "ab") as change:
        change.write(b"more")
        change.flush()
        fault_proxy.play()
        a.save("2000")
        trees.write(a / "notes", b"behind it\n")
        done = ckptfs("remote", "sync", a.path, check=False, timeout=90)
        assert done.returncode == 1 and "1000: is open for change" in done.stderr, done.stderr
        rows = {row["step"] or row["path"]: (row["state"], row["waits_for"]) for row in show(a.path)["queue"]}
        assert rows["1000"] == ("held", "the end of a change: it is open here") and "2000" not in rows, rows
        assert rows["notes"] == ("held", "1000, which is open for change"), rows
    ckptfs("remote", "sync", a.path, timeout=90)
    assert show(a.path)["queue"] == []
    b = node("b")
    assert (b / "1000/config.json").read_bytes().endswith(b"more") and "notes" in b.listing()


def test_a_step_that_cannot_be_read_is_told_until_it_is_dropped(node, show, fault_proxy, ckptfs):
    n = node("a", endpoint=fault_proxy.endpoint)
    fault_proxy.play(OFFLINE)
    n.save("1000")
    damage(n, "1000", ckptfs)
    n.save("2000")
    fault_proxy.play()
    n.wait("2000")
    done = ckptfs("remote", "sync", n.path, check=False)
    assert done.returncode == 1 and "cannot be read" in done.stderr and "remote drop" in done.stderr, done.stderr
    [row] = show(n.path)["queue"]
    assert (row["step"], row["state"]) == ("1000", "failed") and row["error"]
    ckptfs("remote", "drop", "--yes", n.path, "1000")
    ckptfs("remote", "sync", n.path)
    said = show(n.path)
    assert said["queue"] == [] and names(said["dropped"]) == [("save", "1000")]


def test_a_step_is_dropped_where_nothing_is_mounted(node, show, fault_proxy, ckptfs):
    n = node("a", endpoint=fault_proxy.endpoint)
    fault_proxy.play(OFFLINE)
    n.save("1000")
    n.save("2000")
    n.umount()
    fault_proxy.play()
    ckptfs("remote", "drop", "--yes", n.work_dir, "1000")
    said = show(n.work_dir)
    assert said["queue"] == [] and names(said["dropped"]) == [("save", "1000")], "the rest is pushed as with any verb"
    assert node("b").listing() == ["2000"]


def test_what_cannot_be_dropped_is_refused(node, ckptfs, fault_proxy):
    n = node("a", endpoint=fault_proxy.endpoint)
    n.save("1000")
    n.wait()
    for hint, words in (("as it is here", ["1000"]), ("no such step", ["9"])):
        done = ckptfs("remote", "drop", "--yes", n.path, *words, check=False)
        assert done.returncode == 1 and hint in done.stderr, done.stderr
    fault_proxy.play(OFFLINE)
    ckptfs("mv", n.path, "1000", "2000")
    done = ckptfs("remote", "drop", "--yes", n.path, "2000", check=False)
    assert done.returncode == 1 and "old name back" in done.stderr, done.stderr
    ckptfs("rm", n.path, "2000")
    done = ckptfs("remote", "drop", "--yes", n.path, "trash/2000", check=False)
    assert done.returncode == 2 and "ckptfs undelete" in done.stderr, done.stderr


def test_a_save_that_waits_for_the_object_store_ends_when_it_is_dropped(node, fault_proxy, ckptfs, show):
    n = node("a", endpoint=fault_proxy.endpoint, options=("durability=remote",))
    fault_proxy.play(OFFLINE)
    folder = n / "1000"
    folder.mkdir()
    trees.fill(folder, seed="1000")
    with subprocess.Popen(["sh", "-c", ': > "$0"/.finalize', str(folder)], stderr=subprocess.PIPE, text=True) as save:
        wait_until(lambda: names(show(n.path)["queue"]) == [("save", "1000")], what="the step")
        ckptfs("remote", "drop", "--yes", n.path, "1000")
        assert save.wait(SEEN + 20) in (0, 1, 2)
    assert "1000" in n.listing()
    assert "took it out of the queue" in (n / ".ckptfs/errors").read_text()


def test_the_policy_that_one_node_sets_is_that_of_all(node, ckptfs, scratch):
    def policy(store):
        return ckptfs.json("policy", "show", store)

    a, b = node("a"), node("b")
    (scratch / "policy.json").write_text('{"save": {"fixed_interval": {"interval": 7}}}')
    before = policy(b.path)
    ckptfs("policy", "set", a.path, scratch / "policy.json")
    ckptfs("remote", "sync", a.path)
    ckptfs("remote", "sync", b.path)
    assert policy(b.path) == policy(a.path) != before
    assert [ckptfs("should-save", n.path, "14", check=False).stdout for n in (a, b)] == ["yes permanent fixed_interval\n"] * 2
    c = node("c")
    assert policy(c.path) == policy(a.path), "a node that comes later"
    (scratch / "policy.json").write_text('{"save": {"fixed_interval": {"interval": 9}}}')
    ckptfs("policy", "set", b.path, scratch / "policy.json")
    ckptfs("remote", "sync", b.path)
    ckptfs("remote", "sync", a.path)
    assert policy(a.path) == policy(b.path) and "9" in json.dumps(policy(a.path))
    a.remount()
    assert policy(a.path) == policy(b.path)


def test_a_program_of_a_policy_runs_only_where_it_was_set(node, ckptfs, scratch):
    a, b = node("a"), node("b")
    (scratch / "policy.json").write_text(json.dumps({"save": {"exec": {"command": ["/bin/true"]}}}))
    ckptfs("policy", "set", a.path, scratch / "policy.json")
    ckptfs("remote", "sync", a.path)
    ckptfs("remote", "sync", b.path)
    assert ckptfs("should-save", a.path, "5").stdout.startswith("yes")
    done = ckptfs("should-save", b.path, "5", check=False)
    assert done.returncode == 2 and "another node has set it" in done.stderr, done
    ckptfs("policy", "set", b.path, scratch / "policy.json")
    assert ckptfs("should-save", b.path, "6").stdout.startswith("yes")
