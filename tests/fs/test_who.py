"""Each version says who made it: the program, its user and the node of the process that asked, or the mount itself."""

import json
import os
import subprocess

import pytest

from support.fixtures import all_modes, needs_root
from support.mounting import wait_until
from support.quiet import ARRAY, FILES, SAVE

pytestmark = pytest.mark.timeout(90)

OTHER = 4003  # a user without a name
ALL = "allow_other"
MAKE = """
os.mkdir(path)
for name, text in (("a", "1"), ("b", "2")):
    with open(f"{path}/{name}", "w") as f:
        f.write(text)
"""
MARK = "open(path + '/.finalize', 'w').close()"
NAME = """
import ctypes
ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
"""


def made_by(ckptfs, store, name):
    """[(event, program, uid)] of each version."""
    versions = ckptfs.json("info", store, name)["versions"]
    node = json.loads((store / "store.json").read_text())["node"]
    assert all(v["by"]["node"] == node for v in versions)
    return [(v["event"], v["by"]["program"], v["by"]["uid"]) for v in versions]


def comm_of(pid):
    with open(f"/proc/{pid}/comm") as f:
        return f.read().rstrip("\n")


@all_modes
def test_a_save_is_by_the_program_that_completes_it(mount, stage, commit, ckptfs, store, mode):
    stage("1000")
    commit(mount / "1000")
    me = (comm_of("self"), os.geteuid())
    assert made_by(ckptfs, store, "1000") == [("marker", *me)]
    assert ckptfs.json("info", store, "1000")["versions"][0]["by"]["user"] == ("root" if os.geteuid() == 0 else os.environ.get("USER"))
    assert f'"by":{{"program":"{me[0]}","uid":{me[1]}' in ckptfs("info", store, "1000").stdout
    mount.remount()
    assert made_by(ckptfs, store, "1000") == [("marker", *me)]


def test_a_shell_completes_as_itself(mount, stage, ckptfs, store):
    for n, command in enumerate((["sh", "-c", ": > $1/.finalize", "sh"], ["touch"], ["cp", "/dev/null"])):
        stage(str(n))
        path = mount / str(n)
        subprocess.run([*command, path if command[0] == "sh" else path / ".finalize"], check=True)
        [(event, program, _)] = made_by(ckptfs, store, str(n))
        assert (event, program) == ("marker", command[0]), program


@needs_root
@pytest.mark.parametrize("options", [ALL], indirect=True)
def test_a_save_by_another_user_is_by_that_user(mount, agent, ckptfs, store):
    os.chmod(mount.path, 0o777)
    other, root = agent(uid=OTHER), agent()
    other.run(NAME, name=b"other")
    root.run(NAME, name=b"root")
    for name, who in (("1", other), ("2", root)):
        who.run(MAKE, path=str(mount / name))
    for name, who in (("1", other), ("2", root)):
        who.run(MARK, path=str(mount / name))
    assert made_by(ckptfs, store, "1") == [("marker", "other", OTHER)]
    assert made_by(ckptfs, store, "2") == [("marker", "root", 0)]
    assert ckptfs.json("info", store, "1")["versions"][0]["by"]["user"] is None
    other.run("open(path, 'w').close()", path=str(mount / "1/added"))
    root.run("os.rename(path, path + '0')", path=str(mount / "1"))
    root.run("open(path, 'w').close()", path=str(mount / "10/later"))
    assert [by[1:] for by in made_by(ckptfs, store, "10")] == [("other", OTHER), ("other", OTHER), ("root", 0)]
    before = made_by(ckptfs, store, "10")
    for _ in range(2):
        mount.remount()
        assert made_by(ckptfs, store, "10") == before


def test_a_deletion_is_by_who_deletes(mount, stage, commit, ckptfs, store):
    stage("1000")
    commit(mount / "1000")
    subprocess.run(["rm", "-r", mount / "1000"], check=True)
    ckptfs("undelete", store, "1000")
    ckptfs("pin", store, "1000")
    want = [("marker", comm_of("self")), ("delete", "rm"), ("marker", "ckptfs"), ("marker", "ckptfs")]
    assert [by[:2] for by in made_by(ckptfs, store, "1000")] == want
    mount.umount()
    ckptfs("unpin", store, "1000")  # without a mount
    assert [by[:2] for by in made_by(ckptfs, store, "1000")] == [*want, ("marker", "ckptfs")]


@needs_root
@pytest.mark.parametrize("options", [[ALL, "commit_quiet=500ms"]])
def test_what_the_mount_does_by_itself_is_its_own(mount, agent, ckptfs, store):
    os.chmod(mount.path, 0o777)
    other = agent(uid=OTHER)
    for n in (1, 2):
        other.run(SAVE, path=str(mount / f"step_{n}"), names=FILES, array=ARRAY)
    wait_until(lambda: mount.listing() == ["step_1", "step_2"], what="the steps", timeout=30)
    for n in (1, 2):
        assert made_by(ckptfs, store, f"step_{n}") == [("quiet", "ckptfs", os.geteuid())]


@needs_root
@pytest.mark.parametrize("options", [ALL], indirect=True)
def test_changes_that_wait_a_while_are_a_version_of_the_mount(mount, agent, ckptfs, store):
    os.chmod(mount.path, 0o777)
    other = agent(uid=OTHER)
    other.run(NAME, name=b"other")
    other.run(MAKE, path=str(mount / "1"))
    other.run(MARK, path=str(mount / "1"))
    for n, change in enumerate(("os.chmod(path + '/a', 0o600)", "os.unlink(path + '/b')"), 2):
        other.run(change, path=str(mount / "1"))
        wait_until(lambda n=n: len(made_by(ckptfs, store, "1")) == n, what="the version")
    assert [by[1:] for by in made_by(ckptfs, store, "1")] == [("other", OTHER), ("ckptfs", os.geteuid()), ("ckptfs", os.geteuid())]


@needs_root
@pytest.mark.parametrize("options", [[ALL, "seal=yes"]])
def test_a_seal_is_by_the_mount(mount, agent, ckptfs, store):
    os.chmod(mount.path, 0o777)
    other = agent(uid=OTHER)
    other.run(MAKE, path=str(mount / "1"))
    other.run(NAME, name=b"other")
    other.run(MARK, path=str(mount / "1"))
    ckptfs("wait", "--sealed", "--timeout", "60s", store, "1")
    first, *rest = made_by(ckptfs, store, "1")
    assert first == ("marker", "other", OTHER)
    assert rest and all(by[1:] == ("ckptfs", os.geteuid()) for by in rest), rest


@pytest.mark.parametrize("raw, shown", [
    (b"a\nb\rc", "a?b?c"), (b"\x1b[31m\x1b]0;x\x07", "?[31m?]0;x?"), (b"fourteen-bytes\xc3\xa9", "fourteen-bytes?"),
    (b"\xe2\x80\xaetxt", "???txt"), (b"\xc2\x9b2J", "??2J"), ("étude".encode(), "étude"), (b'"\\{}', '"\\{}'), (b"\xff\xfe\x7f", "???")])
def test_a_hostile_name_reaches_no_terminal(mount, agent, ckptfs, store, raw, shown):
    a = agent()
    a.run(NAME, name=raw)
    a.run(MAKE, path=str(mount / "1"))
    a.run(MARK, path=str(mount / "1"))
    assert made_by(ckptfs, store, "1") == [("marker", shown, os.geteuid())]
    for words in (["info", store, "1"], ["info", "--json", store, "1"]):
        said = subprocess.run([ckptfs.path, *words], capture_output=True, check=True).stdout
        assert not [byte for byte in said if byte < 0x20 and byte != 0x0a or byte == 0x7f], said
        assert b"\xc2\x9b" not in said and b"\xe2\x80\xae" not in said
        said.decode()
    entries = b"".join(path.read_bytes() for path in (store / "log").glob("*"))
    assert shown.encode() in entries
    mount.remount()
    assert made_by(ckptfs, store, "1") == [("marker", shown, os.geteuid())]


def test_a_commit_is_by_who_asked_for_it_though_he_is_gone(mount, agent, ckptfs, store, stage):
    stage("1")
    dies, writes = agent(), agent()
    for one, name in ((dies, b"dies"), (writes, b"writes")):
        one.run(NAME, name=name)
    writes.run("fd = os.open(path, os.O_WRONLY | os.O_CREAT)", path=str(mount / "1/late"))
    dies.start(MARK, path=str(mount / "1"))
    assert dies.still_busy(0.5), "the commit waits for the writer"
    dies.kill()
    dies.wait_gone(20)
    assert mount.listing() == []
    writes.run("os.close(fd)")
    wait_until(lambda: mount.listing() == ["1"], what="the commit")
    assert made_by(ckptfs, store, "1") == [("marker", "dies", os.geteuid())]
