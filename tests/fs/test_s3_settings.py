"""Settings of a store in a bucket: those of the store are all nodes', those about a disk are each node's own."""

import json
import os

import pytest

from support.mounting import Mount
from support.nodes import *  # noqa: F403

pytestmark = pytest.mark.timeout(180)

OFFLINE = {"do": "reset-before"}


def in_effect(node):
    return dict(line.split("=", 1) for line in (node / ".ckptfs/config").read_text().splitlines())


def set_and_send(ckptfs, node, *words):
    for word in words:
        ckptfs("config", node.path, word)
    ckptfs("remote", "sync", node.path)


def value(ckptfs, store, key):
    return ckptfs("config", store, key).stdout.strip()


def test_a_setting_of_the_store_is_that_of_all_nodes_from_their_next_mount_on(node, ckptfs):
    a, b = node("a"), node("b")
    done = ckptfs("config", a.path, "trash=30d")
    assert "next mount" in done.stderr, done.stderr
    set_and_send(ckptfs, a, "steps_at=run/*", "amend=deny", "hot=7", "work_limit=1GiB")
    assert (in_effect(a)["trash"], in_effect(b)["trash"]) == ("7d", "7d"), "a live mount goes on with what it has"
    b.remount()
    said = in_effect(b)
    assert (said["trash"], said["steps_at"], said["amend"]) == ("30d", "run/*", "deny")
    assert (said["hot"], said["work_limit"]) == ("2", "none"), "of the disk of node a"
    c = node("c")
    assert (in_effect(c)["trash"], in_effect(c)["amend"]) == ("30d", "deny"), "a node that comes later, at its first mount"
    assert ckptfs.json("config", c.path)["trash"] == {"value": 30 * 86400, "default": 7 * 86400, "of": "store", "help": ckptfs.json("config", c.path)["trash"]["help"]}
    assert ckptfs.json("config", c.path)["hot"]["of"] == "node"
    a.remount()
    assert (in_effect(a)["trash"], in_effect(a)["hot"], in_effect(a)["work_limit"]) == ("30d", "7", "1GiB")
    set_and_send(ckptfs, c, "trash=", "steps_at=", "amend=")
    ckptfs("remote", "sync", a.path)
    b.remount([*b.options, "trash=3d"])
    said = in_effect(b)
    assert (said["trash"], said["steps_at"], said["amend"]) == ("3d", "", ""), "the default again; -o wins"
    assert [value(ckptfs, n.path, "trash") for n in (a, b, c)] == ["7d"] * 3
    assert "setting" in [row["operation"] for row in ckptfs.json("log", b.path)]


def test_changes_of_two_nodes_meet(node, ckptfs, fault_proxy):
    """Different settings are both kept; of one setting the later in the log holds."""
    a, b = node("a"), node("b", endpoint=fault_proxy.endpoint)
    fault_proxy.play(OFFLINE)
    for word in ("marker=.b", "trash=2d", "delta=3"):
        ckptfs("config", b.path, word)
    set_and_send(ckptfs, a, "marker=.a", "staging_ttl=3d", "seal=no")
    assert value(ckptfs, b.path, "marker") == ".b" and value(ckptfs, b.path, "seal") == "yes"
    rows = ckptfs.json("remote", "show", b.path)["queue"]
    assert [row["path"] for row in rows] == [".ckptfs/config"], rows
    b.kill9()
    fault_proxy.play()
    b.start()
    for n in (b, a, b):
        ckptfs("remote", "sync", n.path)
    for n in (a, b):
        n.remount()
        said = in_effect(n)
        assert [said[key] for key in ("marker", "trash", "delta", "staging_ttl", "seal")] == [".b", "2d", "3", "3d", "no"]
        assert not n.errors()


def test_a_setting_is_set_for_all_by_a_machine_that_has_no_mount(node, ckptfs, url, scratch, s3_server):
    a = node("a")
    verbs = {"env": os.environ | {"CKPTFS_WORK_DIR": str(scratch / "verbs")}, "timeout": 150}
    options = ("-o", f"endpoint={s3_server.endpoint}")
    ckptfs("config", *options, url, "trash=30d", **verbs)
    a.remount()
    assert in_effect(a)["trash"] == "30d"
    ckptfs("config", *options, url, "hot=9", **verbs)
    assert ckptfs("config", *options, url, "hot", **verbs).stdout == "9\n"
    set_and_send(ckptfs, a, "trash=2d")
    assert ckptfs("config", *options, url, "trash", **verbs).stdout == "2d\n"
    a.remount()
    assert in_effect(a)["hot"] == "2"
    (scratch / "policy.json").write_text('{"save": {"fixed_interval": {"interval": 7}}}')
    ckptfs("policy", "set", *options, url, scratch / "policy.json", **verbs)
    ckptfs("remote", "sync", a.path)
    assert ckptfs.json("policy", "show", a.path)["save"] == {"fixed_interval": {"interval": 7}}


def test_a_node_of_before_keeps_what_its_file_says_until_somebody_sets_it(node, ckptfs):
    a, b = node("a"), node("b")
    b.umount()
    identity = json.loads((b.work_dir / "store.json").read_text())
    identity["settings"] = {"trash": "30d", "marker": ".done", "hot": "5", "later": "x"}
    (b.work_dir / "store.json").write_text(json.dumps(identity))
    set_and_send(ckptfs, a, "open_writers=1s")
    b.start()
    said = in_effect(b)
    assert [said[key] for key in ("trash", "marker", "hot", "open_writers")] == ["30d", ".done", "5", "1s"]
    set_and_send(ckptfs, a, "trash=1d", "marker=")
    b.remount()
    said = in_effect(b)
    assert [said[key] for key in ("trash", "marker", "hot", "open_writers")] == ["1d", ".finalize", "5", "1s"]
    a.remount()
    assert (in_effect(a)["trash"], in_effect(a)["hot"]) == ("1d", "2")


def test_settings_go_with_a_store_that_gets_a_bucket_and_stay_when_it_loses_it(world, node, ckptfs, url, scratch, s3_server):
    store = scratch / "store"
    ckptfs("init", "--set", "trash=30d", "--set", "hot=5", "--set", "durability=remote", store)
    add = ("remote", "add", "-o", f"endpoint={s3_server.endpoint}", store)
    ckptfs(*add, url)
    b = node("b")
    said = in_effect(b)
    assert (said["trash"], said["durability"], said["hot"]) == ("30d", "remote", "2")
    set_and_send(ckptfs, b, "trash=", "delta=4")
    ckptfs("config", store, "staging_ttl=1d")
    assert value(ckptfs, store, "trash") == "7d", "the log was read before it was put there"
    ckptfs("remote", "remove", "--yes", store)
    said = json.loads((store / "store.json").read_text())["settings"]
    assert said == {"hot": "5", "delta": "4", "staging_ttl": "1d"}, said
    m = Mount.new(world, store, scratch / "mnt-local")
    assert [in_effect(m)[key] for key in ("trash", "delta", "staging_ttl", "hot", "durability")] == ["7d", "4", "1d", "5", "local"]
    m.umount()
    ckptfs("config", store, "delta=")
    ckptfs("config", store, "trash=2d")
    assert (value(ckptfs, store, "delta"), value(ckptfs, store, "trash")) == ("0", "2d"), "its file alone counts"
    ckptfs(*add, url + "-second")
    assert (value(ckptfs, store, "delta"), value(ckptfs, store, "trash"), value(ckptfs, store, "staging_ttl")) == ("0", "2d", "1d")
