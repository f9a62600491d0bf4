"""note: metrics and extras for a step that is committed, by the verb and by libckptfs, of a store that is mounted or not."""

import pytest

from support import trees
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def saved(mount, stage, commit):
    stage("1000")
    commit(mount / "1000", b'{"extras":{"by":"marker"},"metrics":{"loss":9,"epoch":4}}')
    stage("2000")
    commit(mount / "2000")


@pytest.fixture(params=["mounted", "at rest"])
def at(request, mount, saved, store):
    if request.param == "at rest":
        mount.umount()
    return store


def said(ckptfs, store, name):
    row = ckptfs.json("info", store, name)
    return row["extras"], row["metrics"]


def test_names_that_a_note_does_not_say_stay(ckptfs, at, tmp_path):
    before = ckptfs.json("info", at, "1000")
    (tmp_path / "m.json").write_text('{"metrics":{"loss":2,"acc":0.5},"extras":{"run":"a"}}')
    assert ckptfs.json("note", at, "1000", "--metadata", tmp_path / "m.json") == {"ok": True}
    want = {"by": "marker", "run": "a"}, {"loss": 2, "epoch": 4, "acc": 0.5}
    assert said(ckptfs, at, "1000") == want
    after = ckptfs.json("info", at, "1000")
    assert after["version"] == before["version"] + 1 and after["bytes"] == before["bytes"]
    assert ckptfs("ls", at, "--where", "acc = 0.5").stdout.split() == ["1000"]
    assert ckptfs.json("log", at, "1000")[0]["operation"] == "metadata"
    ckptfs("note", at, "1000", "--metadata", tmp_path / "m.json")
    assert ckptfs.json("info", at, "1000")["version"] == after["version"], "it says nothing new"
    ckptfs("note", at, "latest", "-m", "-", input='{"metrics":{"loss":1}}')
    assert said(ckptfs, at, "2000") == ({}, {"loss": 1})
    assert ckptfs.json("latest", at)["name"] == "2000"
    ckptfs("verify", at)


@pytest.mark.parametrize("text", ["", "[]", '{"metrics":{"loss":"low"}}', '{"findings":{}}', "{" + " " * 70000 + "}", '{"temporary":true}', '{"metrics":{"loss":1},"world_size":8}', "{}"],
                         ids=["empty", "list", "text", "findings", "long", "temporary", "world", "nothing"])
def test_what_is_no_metadata_changes_nothing(ckptfs, at, tmp_path, text):
    (tmp_path / "m.json").write_text(text)
    before = ckptfs.json("info", at, "1000")
    done = ckptfs("note", at, "1000", "--metadata", tmp_path / "m.json", check=False)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 2
    assert ckptfs.json("info", at, "1000") == before


def test_a_note_drops_nothing_for_want_of_room(ckptfs, at, tmp_path):
    (tmp_path / "m.json").write_text('{"extras":{"first":"%s"}}' % ("x" * 40000))
    ckptfs("note", at, "1000", "--metadata", tmp_path / "m.json")
    before = ckptfs.json("info", at, "1000")
    (tmp_path / "m.json").write_text('{"extras":{"second":"%s"}}' % ("x" * 40000))
    done = ckptfs("note", at, "1000", "--metadata", tmp_path / "m.json", check=False)
    assert done.returncode == 1 and ("64 KiB" in done.stderr or "too large" in done.stderr.lower()), done.stderr
    assert ckptfs.json("info", at, "1000") == before and before["extras"]["by"] == "marker"


def test_a_note_survives_the_daemon(ckptfs, mount, saved, store):
    ckptfs("note", store, "1000", "-m", "-", input='{"metrics":{"loss":1}}')
    mount.kill9()
    assert said(ckptfs, store, "1000") == ({"by": "marker"}, {"loss": 1, "epoch": 4})
    mount.start()
    assert said(ckptfs, store, "1000") == ({"by": "marker"}, {"loss": 1, "epoch": 4})


def test_a_staged_step_and_a_deleted_one_take_no_note(ckptfs, mount, saved, store, stage):
    stage("3000")
    ckptfs("rm", store, "1000")
    for name, status in (("3000", 1), ("1000", 1), ("trash/1000", 2)):
        assert ckptfs("note", store, name, "-m", "-", input='{"metrics":{"loss":1}}', check=False).returncode == status


def test_a_step_that_is_being_edited_takes_a_note_later(ckptfs, mount, saved, store):
    with open(mount / "1000/config.json", "r+b") as f:
        f.write(b"x")
        f.flush()
        done = ckptfs("note", store, "1000", "-m", "-", input='{"metrics":{"loss":1}}', check=False)
        assert done.returncode == 1 and "being removed or changed" in done.stderr, done.stderr
    trees.write(mount / "1000/.finalize", b'{"metrics":{"epoch":5}}')
    ckptfs("note", store, "1000", "-m", "-", input='{"metrics":{"loss":1}}')
    assert said(ckptfs, store, "1000")[1] == {"loss": 1, "epoch": 5} and (mount / "1000/config.json").read_bytes()[:1] == b"x"


def test_a_note_and_a_file_that_joins_the_step_both_stay(ckptfs, mount, saved, store):
    with open(mount / "1000/new", "wb") as f:
        f.write(b"x")
        f.flush()
        ckptfs("note", store, "1000", "-m", "-", input='{"metrics":{"loss":1}}')
    wait_until(lambda: ckptfs("cat", store, "1000/new", check=False).stdout == "x")
    assert said(ckptfs, store, "1000")[1] == {"loss": 1, "epoch": 4}


def test_the_policy_goes_by_a_metric_that_comes_later(ckptfs, mount, stage, commit, store, tmp_path):
    """The best step stays, though it has its metric only after its commit."""
    (tmp_path / "p.json").write_text('{"keep":{"best_n":{"metric":"loss","n":1,"reverse":true}}}')
    for name in ("1", "2", "3"):
        stage(name)
        commit(mount / name)
    for name, loss in (("1", 3), ("2", 1), ("3", 2)):
        ckptfs("note", store, name, "-m", "-", input=f'{{"metrics":{{"loss":{loss}}}}}')
    ckptfs("policy", "set", store, tmp_path / "p.json")
    ckptfs("retain", store)
    wait_until(lambda: ckptfs("ls", store).stdout.split() == ["2", "3"])
