"""Verbs on the URL of a store that nobody has mounted on this machine: what they do is in the bucket when they end."""

import fcntl
import json
import os
import struct
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from safetensors.numpy import load_file

from support import trees
from support.mounting import wait_until
from support.nodes import *  # noqa: F403
from support.nodes import Node
from support.object_servers import running_server

F_OFD_SETLK = 37

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def elsewhere(node):
    """A node that has saved three steps, and has the store mounted."""
    n = node("a")
    for name in ("1000", "2000", "3000"):
        n.save(name)
    n.wait()
    return n


@pytest.fixture
def verb(ckptfs, url, scratch, s3_server):
    """A machine of its own, which has a work directory and nothing else."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_ENDPOINT")}
    env["CKPTFS_WORK_DIR"] = str(scratch / "verbs")

    def run(name, *words, endpoint=s3_server.endpoint, **how):
        options = ("-o", f"endpoint={endpoint}") if endpoint else ()
        return ckptfs(name, *options, url, *words, env=env, timeout=150, **how)
    return run


def test_what_verbs_do_is_seen_by_a_node_that_has_it_mounted(elsewhere, verb, scratch):
    def shows(*names):
        wait_until(lambda: elsewhere.listing() == sorted(names), timeout=30, what=f"{names}, not {elsewhere.listing()}")

    verb("rm", "1000")
    shows("2000", "3000")
    verb("undelete", "1000")
    verb("mv", "3000", "4000")
    shows("1000", "2000", "4000")
    folder = scratch / "folder"
    trees.fill(folder, seed="saved")
    verb("save", str(folder), "5000")
    shows("1000", "2000", "4000", "5000")
    assert trees.files(elsewhere / "5000") == trees.files(folder)


def test_a_step_is_fetched_by_a_machine_that_has_nothing_else(elsewhere, verb, scratch):
    verb("get", "2000", str(scratch / "out"))
    assert trees.files(scratch / "out") == trees.files(elsewhere / "2000")
    said = json.loads(verb("du", "--json").stdout)
    assert said["packed_bytes"] > 0 and said["raw_bytes"] == 0


def test_the_log_says_on_which_node_each_act_was_done_and_each_once(elsewhere, verb, ckptfs):
    os.rename(elsewhere / "3000", elsewhere / "4000")
    elsewhere.wait()
    verb("pin", "1000")
    verb("rm", "2000")
    verb("wait", "--remote")
    there = json.loads((elsewhere.work_dir / "store.json").read_text())["node"]
    want = [("delete", "2000", False), ("pin", "1000", False), ("rename", "4000", True), *[("commit", name, True) for name in ("3000", "2000", "1000")]]

    def acts(rows):
        return [(row["operation"], row["step"], row["by"]["node"] == there) for row in rows if row["operation"] != "attach"]
    rows = json.loads(verb("log", "--json").stdout)
    assert acts(rows) == want
    assert {(row["by"]["host"] is None) == (row["by"]["node"] == there) for row in rows} == {True}
    lines = verb("log").stdout.splitlines()
    assert lines[0].split()[-1] == "NODE" and there[:8] in lines[3] and "3000 -> 4000" in lines[3]
    assert json.loads(verb("log", "4000", "-n", "1", "--json").stdout)[0]["from"] == "3000"
    wait_until(lambda: acts(ckptfs.json("log", elsewhere.path)) == want, what="the acts of the other node")


def test_the_options_are_kept_for_the_next_verb(elsewhere, verb):
    verb("ls")
    assert verb("ls", endpoint=None).stdout.split() == ["1000", "2000", "3000"]


def test_options_that_do_not_work_are_not_kept(elsewhere, verb, fault_proxy):
    verb("ls")
    fault_proxy.play({"do": "status", "status": 403, "code": "AccessDenied"})
    said = verb("ls", endpoint=fault_proxy.endpoint, check=False)
    assert said.returncode == 1 and "Permission denied" in said.stderr, said.stderr
    elsewhere.save("4000")
    elsewhere.wait()
    assert verb("ls", endpoint=None).stdout.split() == ["1000", "2000", "3000", "4000"]


def test_a_machine_that_verbs_have_used_mounts_without_the_network(elsewhere, verb, world, url, scratch, fault_proxy):
    verb("ls", endpoint=fault_proxy.endpoint)
    [made] = (scratch / "verbs").iterdir()
    fault_proxy.play({"do": "reset-before"})
    (scratch / "mnt").mkdir()
    n = Node(world, url, scratch / "mnt", made, fault_proxy.endpoint, ())
    world.callback(n._end)
    n.start()
    assert n.listing() == ["1000", "2000", "3000"]
    n.save("4000")
    assert not json.loads((made / "store.json").read_text())["remote"].get("probed")
    fault_proxy.play()
    n.wait("4000", timeout=90)
    assert json.loads((made / "store.json").read_text())["remote"]["probed"] is True


def test_another_verb_that_has_the_store_is_waited_for(elsewhere, verb, scratch, fault_proxy):
    """It is no mount, and may not send what was done before."""
    verb("ls", endpoint=fault_proxy.endpoint)
    [made] = (scratch / "verbs").iterdir()
    fault_proxy.play({"op": "PutObject", "do": "status", "status": 403, "code": "AccessDenied"})
    assert verb("rm", "1000", endpoint=None, check=False).returncode == 1
    fault_proxy.play()
    with open(made / "lock", "r+b") as lock, ThreadPoolExecutor() as pool:
        fcntl.fcntl(lock, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        waits = pool.submit(verb, "wait", "--remote", endpoint=None, check=False)
        time.sleep(2)
        assert not waits.done() and elsewhere.listing() == ["1000", "2000", "3000"]
        lock.close()
        said = waits.result()
    assert said.returncode == 0, said.stderr
    wait_until(lambda: elsewhere.listing() == ["2000", "3000"], 30, "the deletion")


def test_options_are_for_urls_alone(ckptfs, store):
    ckptfs("init", store)
    said = ckptfs("ls", "-o", "endpoint=http://127.0.0.1:1", store, check=False)
    assert said.returncode == 2 and "is of a STORE that is a URL" in said.stderr
    said = ckptfs("ls", "-o", "endpiont=x", "s3://bucket/run", check=False)
    assert said.returncode == 2 and "did you mean endpoint" in said.stderr


def test_what_cannot_be_sent_waits_and_is_said(elsewhere, verb, fault_proxy):
    verb("ls", endpoint=fault_proxy.endpoint)
    fault_proxy.play({"op": "PutObject", "do": "status", "status": 403, "code": "AccessDenied"})
    said = verb("rm", "1000", endpoint=None, check=False)
    assert said.returncode == 1 and "not in the object store yet" in said.stderr, said.stderr
    assert elsewhere.listing() == ["1000", "2000", "3000"]
    fault_proxy.play()
    verb("wait", "--remote", endpoint=None)
    wait_until(lambda: elsewhere.listing() == ["2000", "3000"], timeout=30, what="the deletion")


def test_a_name_that_another_node_was_first_to_take_is_said(elsewhere, verb, scratch, fault_proxy):
    trees.fill(scratch / "folder", seed="late")
    verb("ls", endpoint=fault_proxy.endpoint)
    fault_proxy.play({"op": "PutObject", "do": "status", "status": 403, "code": "AccessDenied"})
    assert verb("save", str(scratch / "folder"), "4000", endpoint=None, check=False).returncode == 1
    elsewhere.save("4000")
    elsewhere.wait()
    fault_proxy.play()
    verb("wait", "--remote", endpoint=None)
    listed = verb("ls", "--all", endpoint=None).stdout.split()
    assert [name for name in listed if name.startswith("4000.conflict-")], listed


def test_nothing_is_sent_to_a_server_that_ignores_conditions(ckptfs, scratch, monkeypatch):
    with running_server("rclone-s3") as server:
        for name, value in server.settings.items():
            monkeypatch.setenv(name, value)
        identity = {"format": 1, "id": str(uuid.uuid4()), "created_ns": time.time_ns(), "required": ["log"], "optional": []}
        client = server.client()
        client.put_object(Bucket=server.bucket, Key="run/store.json", Body=json.dumps(identity))
        trees.fill(scratch / "folder", seed="saved")
        monkeypatch.setenv("CKPTFS_WORK_DIR", str(scratch / "verbs"))
        for _ in range(2):
            said = ckptfs("save", "-o", f"endpoint={server.endpoint}", f"s3://{server.bucket}/run", scratch / "folder", "1000", check=False)
            assert said.returncode == 1 and "would lose steps" in said.stderr, said.stderr
            there = [row["Key"] for row in client.list_objects_v2(Bucket=server.bucket).get("Contents", [])]
            assert there == ["run/store.json"]
            ckptfs("rm", "--now", "--yes", f"s3://{server.bucket}/run", "1000", check=False)


# --- copy -----------------------------------------------------------------------------------------------------------------

@pytest.fixture
def local(scratch, ckptfs):
    """A store on this machine with three steps, one of them in a folder, one pinned."""
    path = scratch / "local"
    ckptfs("init", path)
    (path / "tree/run").mkdir()
    for name in ("1000", "run/20", "500"):
        folder = scratch / "folders" / name
        folder.mkdir(parents=True)
        trees.fill(folder, seed=name)
        (folder / "nothing").mkdir()
        os.link(folder / "config.json", folder / "again.json")
        os.setxattr(folder / "config.json", "user.note", b"kept")
        os.chmod(folder / "config.json", 0o640)
        ckptfs("save", path, folder, name)
    ckptfs("pin", path, "1000")
    return path


@pytest.fixture
def machine(ckptfs, scratch, s3_server):
    """machine("a") runs verbs with a work directory of its own."""
    def make(name):
        env = {key: value for key, value in os.environ.items() if not key.startswith("AWS_ENDPOINT")}
        env["CKPTFS_WORK_DIR"] = str(scratch / f"machine-{name}")

        def run(verb, *words, **how):
            return ckptfs(verb, "-o", f"endpoint={s3_server.endpoint}", *words, env=env, **how)
        return run
    return make


def test_a_store_moves_into_a_bucket_and_back_on_another_machine(local, machine, ckptfs, url, scratch):
    a, b = machine("a"), machine("b")
    sent = json.loads(a("copy", "--json", local, url).stdout)
    assert (sent["steps"], sent["copied"], sent["failed"]) == (3, 3, 0) and sent["sent_bytes"] == sent["bytes"]
    again = json.loads(a("copy", "--json", local, url).stdout)
    assert (again["steps"], again["copied"], again["sent_bytes"]) == (3, 0, 0)
    assert all(row["durable"] == "remote" for row in json.loads(a("ls", "--json", url).stdout))
    said = b("copy", "--dry-run", local, url).stdout
    assert said == "", "another machine sees what is there"
    b("copy", url, scratch / "back")
    for name in ("1000", "run/20", "500"):
        x, y = (scratch / f"{store}-{name.replace('/', '-')}" for store in ("local", "back"))
        ckptfs("get", local, name, x)
        ckptfs("get", scratch / "back", name, y)
        assert trees.files(x) == trees.files(y) and trees.describe(x) == trees.describe(y), name
        assert os.stat(y / "config.json").st_ino == os.stat(y / "again.json").st_ino
    rows = {row["name"]: row for row in ckptfs.json("ls", scratch / "back")}
    assert {name: row["pinned"] for name, row in rows.items()} == {"1000": True, "run/20": False, "500": False}
    assert sorted(rows, key=lambda name: rows[name]["committed_at"]) == ["1000", "run/20", "500"], "in the order of their commits"
    ckptfs("verify", "--read-data", scratch / "back")


def test_a_copy_into_a_bucket_goes_on_where_it_was(local, machine, url, fault_proxy, ckptfs, scratch):
    """What was not sent waits on this machine; what was is not sent again."""
    a = machine("a")
    a("init", url)
    a("copy", "--steps", "1000", local, url)
    fault_proxy.play({"op": "PutObject", "do": "status", "status": 403, "code": "AccessDenied"})
    done = a("copy", "-o", f"endpoint={fault_proxy.endpoint}", local, url, check=False)
    assert done.returncode == 1 and "not in the object store yet" in done.stderr, done.stderr
    assert machine("b")("ls", url).stdout.split() == ["1000"]
    fault_proxy.play()
    done = json.loads(a("copy", "--json", local, url).stdout)
    assert (done["steps"], done["copied"], done["failed"]) == (3, 1, 0), "the second is there on this machine, the third was not tried"
    fault_proxy.play({"op": "PutObject", "do": "status", "status": 403, "code": "AccessDenied"})
    ckptfs("save", local, scratch / "folders/500", "600")
    assert a("copy", "-o", f"endpoint={fault_proxy.endpoint}", local, url, check=False).returncode == 1
    fault_proxy.play()
    done = json.loads(a("copy", "--json", local, url).stdout)
    assert (done["copied"], done["sent_bytes"]) == (0, 0), "nothing is missing but in the bucket"
    assert sorted(machine("c")("ls", url).stdout.split()) == ["1000", "500", "600", "run/20"]


def test_a_copy_from_and_into_a_url_that_is_mounted_on_this_machine(local, node, ckptfs, url, scratch):
    """The mount has the store's lock: what is read is read beside it, what is written goes through it."""
    n = node("a")
    n.save("3000")
    env = {key: value for key, value in os.environ.items() if not key.startswith("AWS_ENDPOINT")} | {"CKPTFS_WORK_DIR": str(n.work_dir.parent)}

    def copy(*words):
        done = ckptfs("copy", "--json", *words, env=env, check=False)
        assert done.returncode == 0 and "lock" not in done.stderr and "in use" not in done.stderr, done
        return json.loads(done.stdout)
    assert copy(local, url)["copied"] == 3
    assert n.listing() == ["1000", "3000", "500", "run"] and (n / "run/20").is_dir(), "the mount shows them at once"
    assert copy(local, url)["copied"] == 0
    with ThreadPoolExecutor() as pool:
        outs = [pool.submit(copy, url, scratch / f"out-{i}") for i in range(2)]
        n.save("4000")
        assert all(out.result()["copied"] >= 4 for out in outs)
    assert copy(url, scratch / "out-0")["failed"] == 0
    assert sorted(row["name"] for row in ckptfs.json("ls", scratch / "out-0")) == ["1000", "3000", "4000", "500", "run/20"]
    ckptfs("get", scratch / "out-0", "3000", scratch / "got")
    assert trees.describe(scratch / "got") == trees.describe(n / "3000")
    n.wait()
    assert all(row["durable"] == "remote" for row in ckptfs.json("ls", n.path))


def test_arrays_are_exported_by_a_machine_that_has_nothing_else(node, verb, scratch):
    n = node("a")
    (n / "1000").mkdir()
    numpy.savez(n / "1000/more.npz", counts=numpy.arange(1000), scale=numpy.ones((3, 4)))
    n.complete("1000")
    n.wait()
    verb("export", "1000", str(scratch / "out"), "--format", "safetensors", "--dtype", "float16")
    found = load_file(scratch / "out/model.safetensors")
    assert found["counts"].tolist() == list(range(1000)) and found["scale"].dtype == numpy.float16 and (found["scale"] == 1).all()
