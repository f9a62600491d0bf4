"""Settings that a store keeps: `config`, `init --set`, what a mount makes of them, and `.ckptfs/config`."""

import json
import os
import subprocess

import pytest

from support import trees
from support.mounting import Mount

pytestmark = pytest.mark.timeout(60)

DEFAULTS = {"marker": ".finalize", "steps_at": None, "open_writers": 5, "commit_timeout": 600, "trash": 604800, "show_staged": False, "show_latest": False,
            "latest_by": "commit", "findings": "elements", "target_data_file_size": 64 << 20, "hot": 2, "delta": 0}


def values(ckptfs, store):
    return {k: row["value"] for k, row in ckptfs.json("config", store).items()}


def in_effect(mount):
    return dict(line.split("=", 1) for line in (mount / ".ckptfs/config").read_text().splitlines())


def test_settings_are_listed_with_value_default_and_meaning(ckptfs, store):
    ckptfs("init", store)
    rows = ckptfs.json("config", store)
    assert DEFAULTS.items() <= {k: r["value"] for k, r in rows.items()}.items()
    for row in rows.values():
        assert row.keys() == {"value", "default", "of", "help"} and row["of"] in ("store", "node") and row["value"] == row["default"] and row["help"]
    lines = ckptfs("config", store).stdout.splitlines()
    assert lines[0].split() == ["KEY", "VALUE", "DEFAULT", "OF", "MEANING"] and [line.split()[0] for line in lines[1:]] == list(rows)
    assert ckptfs("config", store, "trash").stdout == "7d\n"
    assert ckptfs.json("info", store)["settings"] == {k: r["value"] for k, r in rows.items()}


@pytest.mark.parametrize("word, value", [("marker=.done", ".done"), ("steps_at=a/*:b", "a/*:b"), ("open_writers=1500ms", 1.5), ("commit_timeout=1h", 3600),
                                         ("trash=0", 0), ("show_staged=yes", True), ("show_latest=true", True), ("latest_by=step", "step"), ("findings=off", "off"),
                                         ("target_data_file_size=1GiB", 1 << 30), ("target_data_file_size=2000KiB", 2000 << 10), ("hot=3", 3), ("hot=all", "all"), ("delta=8", 8), ("hot=0", 0), ("hot=1000000", 1000000)])
def test_what_is_set_is_kept_and_an_empty_value_is_the_default_again(ckptfs, store, word, value):
    key = word.split("=")[0]
    ckptfs("init", store)
    assert ckptfs("config", store, word).stdout == ""
    assert values(ckptfs, store) == ckptfs.json("info", store)["settings"]
    assert values(ckptfs, store)[key] == value
    assert ckptfs.json("config", store, f"{key}=")[key]["value"] == DEFAULTS[key]
    assert values(ckptfs, store)[key] == DEFAULTS[key]


def test_init_sets(ckptfs, store):
    made = ckptfs.json("init", "--set", "trash=1d", "--set", "marker=.done", store)
    assert made["settings"]["trash"] == 86400 and values(ckptfs, store)["marker"] == ".done"


def test_a_mount_does_what_the_store_says_and_its_own_options_win(world, ckptfs, store):
    ckptfs("init", "--set", "marker=.done", "--set", "show_staged=yes", "--set", "trash=1d", store)
    m = Mount.new(world, store, options=["trash=2d"])
    said = in_effect(m)
    assert (said["marker"], said["show_staged"], said["trash"], said["latest_by"], said["steps_at"]) == (".done", "yes", "2d", "commit", "")
    (m / "1").mkdir()
    trees.write(m / "1/.finalize", b"")
    assert m.listing() == ["1"] and ckptfs.json("ls", store) == []
    trees.write(m / "1/.done", b"")
    assert [s["name"] for s in ckptfs.json("ls", store)] == ["1"] and m.listing("1") == [".finalize"]
    m.remount(["show_staged=no", "marker=.finalize"])
    assert (in_effect(m)["show_staged"], in_effect(m)["marker"], in_effect(m)["trash"]) == ("no", ".finalize", "1d")
    with pytest.raises(OSError):
        trees.write(m / ".ckptfs/config", b"trash=1s\n")
    assert "config" in os.listdir(m / ".ckptfs")


def test_a_change_beside_a_mount_waits_for_the_next_and_says_so(mount, store, ckptfs):
    done = ckptfs("config", store, "trash=3d")
    assert str(mount.path) in done.stderr and "next mount" in done.stderr and done.stderr.count("\n") == 1
    assert ckptfs("config", mount.path, "show_latest=yes", "--quiet").stderr == ""
    assert in_effect(mount)["trash"] == "7d"
    mount.remount()
    assert (in_effect(mount)["trash"], in_effect(mount)["show_latest"]) == ("3d", "yes")
    assert ckptfs("config", "trash", cwd=mount.path).stdout == "3d\n"


def test_a_value_that_is_none_is_ignored_and_told_in_errors(mount, store, ckptfs):
    mount.umount()
    identity = json.loads((store / "store.json").read_text())
    identity["settings"] = {"trash": "soon", "marker": ".done", "of a later version": {"x": 1}}
    (store / "store.json").write_text(json.dumps(identity))
    mount.start()
    assert (in_effect(mount)["trash"], in_effect(mount)["marker"]) == ("7d", ".done")
    [line] = mount.errors()
    assert "store.json" in line and "trash" in line and "ckptfs config" in line
    ckptfs("config", store, "trash=1d")
    mount.remount()
    assert len(mount.errors()) == 1 and in_effect(mount)["trash"] == "1d"
    assert "of a later version" in (store / "store.json").read_text()


def test_many_who_change_at_once_lose_nothing(ckptfs, store):
    ckptfs("init", store)
    words = ["trash=1d", "marker=.a", "open_writers=1s", "commit_timeout=2s", "show_staged=yes", "latest_by=step"] * 3
    running = [subprocess.Popen([ckptfs.path, "config", store, word], stderr=subprocess.PIPE) for word in words]
    assert [p.communicate(timeout=20)[1] for p in running] == [b""] * len(words)
    assert json.loads((store / "store.json").read_text())["settings"] == dict(w.split("=") for w in words)


def test_save_leaves_out_the_marker_of_the_store(ckptfs, store, scratch):
    ckptfs("init", "--set", "marker=.done", store)
    (scratch / "out").mkdir()
    trees.fill(scratch / "out")
    (scratch / "out/.done").write_text("")
    ckptfs("save", store, scratch / "out", "1")
    assert ".done" not in [f["path"] for f in ckptfs.json("ls", store, "1")]


@pytest.mark.parametrize("words, status, hint", [
    (["tresh=1d"], 2, "trash"), (["colour=3"], 2, "lists them"), (["trash=soon"], 2, "duration"), (["show_staged=maybe"], 2, "yes or no"), (["latest_by=mtime"], 2, "commit or step"), (["findings=yes"], 2, "elements, headers or off"),
    (["target_data_file_size=1023KiB"], 2, "1MiB to 1GiB"), (["target_data_file_size=2GiB"], 2, "1MiB to 1GiB"), (["hot=-1"], 2, "0 to 1000000, or all"), (["hot=1000001"], 2, "0 to 1000000, or all"), (["hot=few"], 2, "0 to 1000000, or all"), (["delta=all"], 2, "0 to 100"), (["delta=101"], 2, "0 to 100"), (["target_data_file_size=big"], 2, "1MiB to 1GiB"),
    (["marker=a/b"], 2, "file name"), (["marker=\n"], 2, "file name"), (["steps_at=\x7f"], 2, "patterns"), (["=1"], 2, "lists them"), (["trash", "marker"], 2, "usage")])
def test_wrong_settings_are_refused_with_what_is_right(ckptfs, store, words, status, hint):
    ckptfs("init", store)
    before = (store / "store.json").read_bytes()
    done = ckptfs("config", store, *words, check=False)
    assert done.returncode == status and done.stdout == ""
    assert len(done.stderr.splitlines()) == 2 and hint in done.stderr.splitlines()[1], done.stderr
    assert (store / "store.json").read_bytes() == before
    assert ckptfs("init", "--set", words[0], store.parent / "other", check=False).returncode == 2 or words[0] == "trash"
    if "=" in words[0] and words[0] != "=1":
        assert ckptfs("mount", "-o", words[0], store, store.parent, check=False).returncode == 2


def test_a_store_that_cannot_be_read_is_explained(ckptfs, store, scratch):
    ckptfs("init", store)
    (store / "store.json").write_text("{")
    for words in ([store], [store, "trash=1d"]):
        done = ckptfs("config", *words, check=False)
        assert done.returncode == 1 and "backup" in done.stderr
    assert (store / "store.json").read_text() == "{"
    assert ckptfs("config", scratch / "nowhere", check=False).returncode == 1
