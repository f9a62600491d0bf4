"""ckptfs remote add and remove: a local store gets a bucket behind it, and loses it again."""

import json
import os
import shutil
import signal
import subprocess

import pytest

from support import trees
from support.mounting import Mount, wait_until
from support.nodes import *  # noqa: F403
from support.nodes import Node

pytestmark = pytest.mark.timeout(300)

OFFLINE = {"do": "reset-before"}
LARGE = 300_000  # bytes of a plain file that is too large for the log


def save(mount, name, seed=None):
    folder = mount / name
    folder.mkdir(parents=True)
    trees.fill(folder, seed=seed or name)
    trees.write(folder / ".finalize", b"")
    return trees.describe(folder)


@pytest.fixture
def local(world, ckptfs, scratch):
    """A local store with a history, not mounted: {name: what it is}."""
    store = scratch / "local"
    ckptfs("init", store)
    m = Mount.new(world, store, scratch / "mnt-local")
    save(m, "run/3000")
    save(m, "run/1000")
    save(m, "run/2000")
    save(m, "run/gone")
    for at in ("run/1000", "run/2000"):  # 2000 again, after 1000
        shutil.rmtree(m / at) if at == "run/2000" else trees.write(m / at / "notes", b"an edit\n")
    save(m, "run/2000", seed="again")
    shutil.rmtree(m / "run/gone")
    (m / "empty").mkdir()
    (m / "logs/deep").mkdir(parents=True)
    trees.write(m / "logs/deep/train.log", b"step 1\n")
    trees.write(m / "logs/large", trees.content("large", LARGE))
    trees.write(m / "config", b"lr: 1\n")
    os.symlink("config", m / "link")
    trees.write(m / "run/latest", b"2000\n")
    ckptfs("pin", store, "run/3000")
    wait_until(lambda: (m / "run/1000/notes").read_bytes() == b"an edit\n", what="the edit")
    m.umount()
    ckptfs("cool", store, "run/3000")
    m.remount()
    m.store_path = store
    m.had = everything(m)
    m.umount()
    return m


def everything(m):
    """All that a node shows: {path: its bytes}, a link with its target, a folder with None."""
    found = {}
    for top, folders, files in os.walk(m.path):
        for name in folders + files:
            path = os.path.join(top, name)
            entry = os.readlink(path) if os.path.islink(path) else None if os.path.isdir(path) else open(path, "rb").read()
            found[os.path.relpath(path, m.path)] = entry
    return found


def keys(client, s3_server, s3_prefix):
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=s3_server.bucket, Prefix=s3_prefix)
    return {o["Key"]: o["ETag"] for page in pages for o in page.get("Contents", ())}


@pytest.fixture
def add(ckptfs, url, s3_server):
    def run(store, *words, to=url, endpoint=s3_server.endpoint, **how):
        return ckptfs("remote", "add", "-o", f"endpoint={endpoint}", str(store), to, *words, timeout=150, **how)
    return run


def test_a_store_that_gets_a_bucket_has_all_of_it_there_also_if_the_push_is_killed(local, node, ckptfs, fault_proxy, url, client, s3_server, s3_prefix):
    for done, words in (0, ["add", "-o", f"endpoint={fault_proxy.endpoint}", local.store_path, url]), (2, ["sync", local.store_path]):
        fault_proxy.play({"op": "PutObject", "key": "*/log/*", "nth": list(range(done + 1, 1000)), **OFFLINE})  # so many entries arrive
        with subprocess.Popen([ckptfs.path, "remote", *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as push:
            wait_until(lambda: fault_proxy.counts()["by_fault"] or push.poll() is not None, timeout=90, what="an entry that does not arrive")
            assert push.poll() is None, push.stderr.read().decode()
            push.send_signal(signal.SIGKILL)
        fault_proxy.forget()
        assert len([key for key in keys(client, s3_server, s3_prefix) if "/log/" in key]) == done
    fault_proxy.play()
    ckptfs("remote", "sync", local.store_path, timeout=100)
    said = ckptfs.json("remote", "show", local.store_path)
    assert said["url"] == url and said["queue"] == [] and said["options"] == [f"endpoint={fault_proxy.endpoint}"]

    b = node("b")
    assert everything(b) == local.had
    rows = ckptfs.json("log", "--all", b.path)[::-1]
    steps = [row["step"] for row in rows if row["operation"] == "commit"]
    assert steps == ["run/3000", "run/1000", "run/2000"], "not in the order of their commits"
    kinds = [row["operation"] for row in rows if row["operation"] in ("commit", "write", "mkdir")]
    assert set(kinds[kinds.index("write"):]) == {"write"}, f"a file came before a step: {kinds}"
    assert ckptfs.json("info", b.path, "run/3000")["pinned"] is True
    assert ckptfs("latest", b.path, "run").stdout == ckptfs("latest", local.store_path, "run").stdout
    assert ckptfs("ls", "--trash", b.path).stdout.count("gone") == 0
    ckptfs("verify", "--read-data", b.path)

    local.remount()
    assert everything(local) == local.had
    save(local, "run/4000")
    ckptfs("wait", "--remote", local.path)
    ckptfs("remote", "sync", b.path)
    assert "4000" in b.listing("run")


def test_a_bucket_is_not_taken_from_others(local, add, ckptfs, client, s3_server, s3_prefix, url, node, scratch):
    local.remount()
    said = add(local.path, check=False)
    assert said.returncode == 1 and "is mounted at" in said.stderr and "ckptfs umount" in said.stderr, said.stderr
    local.umount()
    client.put_object(Bucket=s3_server.bucket, Key=s3_prefix + "log/0000000000000001", Body=b"x")
    said = add(local.store_path, check=False)
    assert said.returncode == 1 and "has objects and is not a store" in said.stderr, said.stderr
    client.delete_object(Bucket=s3_server.bucket, Key=s3_prefix + "log/0000000000000001")
    n = node("a")
    n.save("1000")
    n.wait()
    said = add(local.store_path, check=False)
    assert said.returncode == 1 and "is another store" in said.stderr and "ckptfs copy" in said.stderr, said.stderr
    said = add(n.work_dir, check=False)
    assert said.returncode == 1, said.stderr
    n.umount()
    said = add(n.work_dir, check=False)
    assert said.returncode == 1 and "has an object store already" in said.stderr, said.stderr
    said = ckptfs("remote", "remove", "--yes", local.store_path, check=False)
    assert said.returncode == 1 and "has no object store" in said.stderr, said.stderr
    assert "remote" not in json.loads((local.store_path / "store.json").read_text())


@pytest.fixture
def pair(node, ckptfs, fault_proxy):
    """Node a has saved; node b has seen it, and nothing of the steps' files is on it but what it has saved itself without the bucket."""
    a = node("a")
    a.first = a.save("1000")
    a.save("2000", files=3)
    a.wait()
    shutil.rmtree(a / "1000")
    a.save("1000", files=2)  # over a step in the trash
    trees.write(a / "2000/notes", b"edited\n")
    trees.write(a / "config", b"lr: 1\n")
    trees.write(a / "large", trees.content("large", LARGE))
    a.wait()
    ckptfs("remote", "sync", a.path)
    b = node("b", endpoint=fault_proxy.endpoint)
    wait_until(lambda: (b / "large").exists() and (b / "2000/notes").exists(), what="what a has done")
    fault_proxy.play(OFFLINE)
    b.save("3000")
    trees.write(b / "mine", b"of b\n")
    os.rename(b / "config", b / "config.old")
    b.had = everything(a) | own_files(b)
    b.umount()
    fault_proxy.play()
    return a, b


def own_files(b):
    own = {p: (b / p).read_bytes() for p in ("mine", "config.old")}
    steps = {f"3000/{p}": data for p, data in trees.files(b / "3000").items()}
    return own | steps


def shows(m, want):
    have = everything(m)
    for path, data in want.items():
        if path != "config":
            assert have.get(path) == data, path
    assert "config" not in have


def test_a_store_that_loses_its_bucket_is_a_local_one_with_all_that_it_showed(pair, add, ckptfs, world, client, s3_server, s3_prefix, fault_proxy, scratch):
    a, b = pair
    said = ckptfs("remote", "remove", b.work_dir, check=False, stdin=subprocess.DEVNULL)
    assert said.returncode == 2 and "--yes" in said.stderr, said.stderr
    fault_proxy.play({"op": "GetObject", "key": "*/packs/*", "do": "status", "status": 403, "code": "AccessDenied"})
    said = ckptfs("remote", "remove", "--yes", b.work_dir, check=False)
    assert said.returncode == 1 and "in the object store only" in said.stderr and "ckptfs warm" in said.stderr, said.stderr
    assert json.loads((b.work_dir / "store.json").read_text())["remote"]
    before = keys(client, s3_server, s3_prefix)
    # A bit that flips on the way is found: there is no other copy later.
    fault_proxy.play({"op": "GetObject", "key": "*/packs/*", "nth": 1, "do": "flip"})
    ckptfs("remote", "remove", "--yes", b.work_dir)
    assert keys(client, s3_server, s3_prefix) == before, "the bucket was changed"
    fault_proxy.play(OFFLINE)
    assert "remote" not in json.loads((b.work_dir / "store.json").read_text())
    assert not (b.work_dir / "tree.json").exists()

    m = Mount.new(world, b.work_dir, scratch / "mnt-plain")
    shows(m, b.had)
    os.rename(m / "1000", m / "1001")
    ckptfs("undelete", m.path, "1000")
    assert trees.describe(m / "1000") == a.first
    ckptfs("get", m.path, "2000@-1", scratch / "before")
    assert not (scratch / "before/notes").exists()
    trees.write(m / "2000/notes", b"edited again\n")
    save(m, "4000")
    m.umount()
    ckptfs("cool", b.work_dir, "2000")
    ckptfs("gc", b.work_dir)
    ckptfs("verify", "--read-data", b.work_dir)
    m.remount()
    want = b.had | {"2000/notes": b"edited again\n"}
    shows(m, {path.replace("1000", "1001", 1) if path.startswith("1000") else path: data for path, data in want.items()})
    m.umount()

    fault_proxy.play()
    said = add(b.work_dir, endpoint=fault_proxy.endpoint, check=False)
    assert said.returncode == 1 and "has steps already" in said.stderr and "ckptfs copy" in said.stderr, said.stderr
    assert "remote" not in json.loads((b.work_dir / "store.json").read_text())


def test_a_store_may_move_to_another_bucket(pair, add, node, ckptfs, world, url, s3_server, scratch):
    """What it knew of the plain files in the first one says nothing of the second."""
    _, b = pair
    ckptfs("remote", "remove", "--yes", b.work_dir)
    add(b.work_dir, to=url + "-second")
    m = Mount.new(world, b.work_dir, scratch / "mnt-moved")
    shows(m, b.had)
    (scratch / "mnt-c").mkdir()
    c = Node(world, url + "-second", scratch / "mnt-c", scratch / "work-c", s3_server.endpoint, ("ro",))
    world.callback(c._end)
    c.start()
    shows(c, b.had)
    ckptfs("verify", "--read-data", c.path)
