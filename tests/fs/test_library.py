"""libckptfs as it is installed: its examples by pkg-config and by CMake, what it exports, and what its calls promise."""

import os
import re
import shutil
import signal
import struct
import subprocess
import threading
import time

import numpy as np
import pytest

from support import checkpoint_files, storelog, trees
from support.fixtures import SLOW, SOURCE
from support.mounting import Mount, wait_until
from support.syncs import BadSyncs

pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(SLOW > 1, reason="a library under a sanitizer needs a program under it")]

LIBRARY = SOURCE / "tests/fs/library"
mounted_or_not = pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "unmounted"])


def run(*command, **kwargs):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=100, **kwargs)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(ckptfs, tmp_path_factory):
    """Where the build under test is installed."""
    prefix = tmp_path_factory.mktemp("installed") / "usr"
    run("cmake", "--install", ckptfs.path.parent, "--prefix", prefix)
    return prefix


@pytest.fixture(scope="module")
def library(installed):
    [link] = installed.rglob("libckptfs.so")
    return link


def by_pkg_config(installed, library, name, out):
    flags = run("pkg-config", "--cflags", "--libs", "ckptfs", env=dict(os.environ, PKG_CONFIG_PATH=str(library.parent / "pkgconfig"))).split()
    run("cc", "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-pthread", "-D_GNU_SOURCE", "-o", out / name, LIBRARY / f"{name}.c", *flags)
    return out / name


def by_cmake(installed, library, name, out):
    run("cmake", "-S", LIBRARY, "-B", out / "build", f"-DCMAKE_PREFIX_PATH={installed}")
    run("cmake", "--build", out / "build", "--target", name)
    return out / "build" / name


@pytest.fixture(scope="module", params=[by_pkg_config, by_cmake])
def examples(request, installed, library, tmp_path_factory):
    """The two examples, built in one way: examples["list"]."""
    return {name: request.param(installed, library, name, tmp_path_factory.mktemp(name)) for name in ("list", "save")}


@pytest.fixture(scope="module")
def calls_program(installed, library, tmp_path_factory):
    return by_pkg_config(installed, library, "calls", tmp_path_factory.mktemp("calls"))


@pytest.fixture
def environment(library):
    return dict(os.environ, LD_LIBRARY_PATH=str(library.parent))


@pytest.fixture
def calls(calls_program, environment, world):
    """call("begin", "1000") -> what the program answers; calls() makes another program."""
    def start(prefix=(), **kwargs):
        p = subprocess.Popen([*prefix, calls_program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **kwargs)
        world.callback(p.kill)

        def call(*words):
            if words == ("end",):
                out, err = p.communicate(timeout=30)
                return (p.returncode, out, err)
            print(*words, sep="\t", file=p.stdin, flush=True)
            return p.stdout.readline().rstrip("\n")
        call.pid = p.pid
        return call
    return start


# --- What is installed ------------------------------------------------------------------------------------------------


def test_library_exports_what_its_header_has_and_nothing_else(installed, library):
    header = (installed / "include/ckptfs.h").read_text()
    declared = set(re.findall(r"^CKPT_PUBLIC [^;(]*?\b(ckpt_\w+)\(", header, re.M))
    exported = run("nm", "-D", "--defined-only", library).split("\n")
    names = {line.split()[-1] for line in exported if line}
    assert len(declared) > 15
    assert names == {f"{name}@@CKPTFS_1" for name in declared} | {"CKPTFS_1"}
    dynamic = run("readelf", "-d", library)
    assert "[libckptfs.so.1]" in dynamic and "NODELETE" in dynamic
    assert library.resolve().name == "libckptfs.so.1.0.0"


def test_header_is_plain_c_and_names_only_its_own(installed, scratch):
    (scratch / "a.c").write_text("#include <ckptfs.h>\n#include <ckptfs.h>\nint main(void) { return ckpt_version() == 0; }\n")
    run("cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", installed / "include", scratch / "a.c")
    if shutil.which("c++"):
        run("c++", "-x", "c++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", installed / "include", scratch / "a.c")
    macros = run("cc", "-dM", "-E", "-I", installed / "include", scratch / "a.c")
    ours = {line.split()[1] for line in macros.splitlines()} - {line.split()[1] for line in run("cc", "-dM", "-E", "-include", "stddef.h", "-include", "stdint.h", "-xc", "/dev/null").splitlines()}
    assert ours and all(re.match(r"CKPT_|CKPTFS_H$", name) for name in ours)


def test_pkg_config_and_cmake_say_the_version_of_the_program(installed, library, ckptfs, environment):
    version = ckptfs("--version").stdout.split()[1]
    path = dict(os.environ, PKG_CONFIG_PATH=str(library.parent / "pkgconfig"))
    assert run("pkg-config", "--modversion", "ckptfs", env=path).strip() == version
    assert f'"{version}"' in next(installed.rglob("ckptfs-config-version.cmake")).read_text()


# --- The examples -----------------------------------------------------------------------------------------------------


@mounted_or_not
def test_examples_save_list_and_resolve(examples, environment, mount, store, ckptfs, scratch, mounted):
    (mount / "run7").mkdir()
    if not mounted:
        mount.umount()
    at = mount.path if mounted else store
    seen = (lambda name: str(mount / name)) if mounted else (lambda name: "-")
    for name, metadata in (("run7/2000", None), ("run7/1000", '{"metrics": {"loss": 1.5}}'), ("best", '{"temporary":true,"extras":{"tag":"é"}}')):
        run(examples["save"], at, name, *([metadata] if metadata else []), input=name, env=environment)
        assert ckptfs("cat", store, f"{name}/model.bin").stdout == name
        if mounted:
            assert (mount / name / "model.bin").read_text() == name
    rows = {row["name"]: row for row in ckptfs.json("ls", store)}
    assert rows["run7/1000"]["metrics"] == {"loss": 1.5} and rows["best"]["temporary"] and rows["best"]["extras"] == {"tag": "é"}
    assert ckptfs.json("verify", store)["bad"] == []
    lines = run(examples["list"], at, "run7", env=environment).splitlines()
    assert lines == [f"run7/2000 2000 9 {seen('run7/2000')} {{}}", f'run7/1000 1000 9 {seen("run7/1000")} {{"metrics":{{"loss":1.5}}}}', f"resume {seen('run7/2000')} run7/2000"]
    for by, want in (("step", "run7/2000"), ("commit", "run7/1000"), ("timestamp", "run7/1000")):
        assert run(examples["list"], at, "run7", by, env=environment).splitlines()[-1] == f"resume {seen(want)} {want}"
    assert run(examples["list"], at, "run8", env=environment) == "scratch - -\n"
    assert run(examples["list"], at, "run8", "", scratch, env=environment) == f"parameters {scratch} -\n"
    assert run(examples["list"], at, "run8", "", "", store / "best", env=environment) == f"full_state {seen('best')} best\n"
    both = subprocess.run([examples["list"], at, "run7", "", "/a", "/b"], env=environment, capture_output=True, text=True)
    assert (both.returncode, both.stderr) == (1, "Invalid argument\n")


def test_example_makes_a_store_where_there_is_none(examples, environment, scratch, ckptfs):
    run(examples["save"], scratch / "new", "1", input="x", env=environment)
    assert ckptfs("ls", scratch / "new").stdout == "1\n"
    (scratch / "full").mkdir()
    (scratch / "full/f").touch()
    for place in (scratch / "full", "/dev/null", scratch / "no/such"):
        assert subprocess.run([examples["save"], place, "1"], env=environment, capture_output=True, stdin=subprocess.DEVNULL).returncode == 1


@pytest.fixture(scope="module")
def format_program(installed, library, tmp_path_factory):
    return by_pkg_config(installed, library, "format", tmp_path_factory.mktemp("format"))


def mine(version, shape, count):
    return b"MINE" + struct.pack("<BB", version, len(shape)) + struct.pack(f"<{len(shape)}I", *shape) + struct.pack(f"<{count}f", *range(count))


def test_format_of_a_program_is_read_as_ours_are(format_program, environment, store, ckptfs, scratch):
    (scratch / "in").mkdir()
    for name, data in {"a.mine": mine(1, (2, 3), 6), "b.mine": mine(2, (2, 3), 6), "cut.mine": mine(1, (2, 3), 5), "refused.mine": mine(1, (1,) * 9, 1), "short.mine": b"MINE\1\4", "other.mine": mine(3, (1,), 1), "huge.mine": mine(2, (4294967295,) * 8, 1)}.items():
        (scratch / "in" / name).write_bytes(data)
    (scratch / "in/ours.safetensors").write_bytes((60).to_bytes(8, "little") + b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.ljust(60) + struct.pack("<f", 7))
    ckptfs("init", store)
    ckptfs("save", store, scratch / "in", "1")
    assert sorted(run(format_program, store, "1", env=environment).splitlines()) == sorted([
        "a.mine mine mine 0 1 2 3 4 5", "b.mine mine mine 0 2 4 1 3 5", "cut.mine mine mine a piece lies outside of its file", "ours.safetensors x safetensors 7"])
    assert [row["tree"] for row in ckptfs.json("arrays", store, "1")] == ["ours.safetensors"]  # a verb is another process


def test_format_of_a_program_is_asked_though_the_step_has_a_catalog(format_program, environment, mount, store, ckptfs, commit):
    mount.remount(["seal=yes", "findings=headers"])
    (mount / "1").mkdir()
    (mount / "1/a.mine").write_bytes(mine(2, (2, 3), 6))
    np.save(mount / "1/ours.npy", np.float32([7]))
    commit(mount / "1")
    wait_until(lambda: ckptfs.json("info", mount.path, "1")["findings"], 60, "findings, and the catalog beside them")
    mount.umount()
    assert [row["name"] for row in ckptfs.json("arrays", store, "1")] == ["ours"]
    assert sorted(run(format_program, store, "1", env=environment).splitlines()) == [". ours npy 7", "a.mine mine mine 0 2 4 1 3 5"]


def test_format_that_is_not_registered_is_named_with_those_that_are(format_program, environment):
    def find(*words):
        done = subprocess.run([format_program, "-", "-", "find", *words], env=environment, capture_output=True, text=True)
        return done.stdout.strip()

    assert find("read", "mine", "2") == find("read", "mine", "0") == find("read", "npy", "1") == find("write", "orbax", "1") == "found"
    assert find("read", "mine", "3").startswith("no format is registered for (read, mine, 3); there are (read, npy, 1), ") and find("read", "mine", "3").endswith("(read, mine, 1), (read, mine, 2)")
    assert find("write", "mine", "0").startswith("no format is registered for (write, mine, any version); there are (write, safetensors, 1)") and "mine, 1" not in find("write", "mine", "0")
    assert find("load", "npy", "1") == "no format is registered for (load, npy, 1); the actions are read and write"


# --- The calls --------------------------------------------------------------------------------------------------------


@mounted_or_not
def test_save_that_fails_can_be_tried_again_and_ends_once(calls, mount, store, ckptfs, commit, stage, mounted):
    stage("1000")
    commit(mount / "1000")
    if not mounted:
        mount.umount()
    call = calls()
    assert call("open", store) == "ok"
    assert call("begin", "1000") == "EEXIST"
    assert call("begin", "a/b") == "ENOENT" and call("begin", "../x") == "EINVAL"
    assert call("begin", "2000") == call("write", "f", "some") == "ok"
    assert call("find", "2000") == "ENOENT" and [row["name"] for row in ckptfs.json("ls", store)] == ["1000"]
    assert call("commit", '{"loss": 1}') == call("commit", "{") == "EINVAL"
    assert call("commit", '{"extras":{"a":1}}') == "ok"
    assert call("find", "2000") == f'2000 1 {mount / "2000" if mounted else "-"} {{"extras":{{"a":1}}}}'
    assert call("commit") == call("abort") == "EALREADY" and call("leave") == "ok"
    assert ckptfs("cat", store, "2000/f").stdout == "some"
    assert call("begin", "3000") == call("write", "f", "more") == call("abort") == call("leave") == "ok"
    assert ckptfs.json("sessions", store) == [] and call("find", "3000") == "ENOENT"
    assert call("begin", "3000") == call("write", "f", "more") == call("leave") == "ok"
    assert call("end") == (0, "", ""), "nothing but its answers"
    [session] = ckptfs.json("sessions", store)
    assert session["name"] == "3000" and session["files"] == 1


@mounted_or_not
def test_a_committed_step_takes_a_note(calls, mount, store, ckptfs, commit, stage, mounted):
    stage("1000")
    commit(mount / "1000", b'{"metrics":{"a":1}}')
    stage("2000")
    if not mounted:
        mount.umount()
    call = calls()
    assert call("open", store) == call("note", "1000", '{"metrics":{"b":2}}') == call("note", "latest", '{"extras":{"c":[3]}}') == "ok"
    assert call("find", "1000") == f'1000 3 {mount / "1000" if mounted else "-"} {{"extras":{{"c":[3]}},"metrics":{{"a":1,"b":2}}}}'
    assert call("note", "1000", "{") == call("note", "1000", '{"loss":1}') == call("note", "1000", "") == "EINVAL"
    assert call("note", "2000", '{"metrics":{"b":2}}') == call("note", "nosuch", '{"metrics":{"b":2}}') == call("note", "1000/config.json", '{"metrics":{"b":2}}') == "ENOENT"
    assert call("find", "1000").split()[1] == "3"
    if mounted:
        with open(mount / "1000/config.json", "r+b") as f:
            f.write(b"x")
            f.flush()
            assert call("note", "1000", '{"metrics":{"b":3}}') == "EBUSY"
    assert call("end") == (0, "", "")


@mounted_or_not
def test_save_by_force_takes_the_place_of_the_step_in_one_act(calls, mount, store, ckptfs, commit, stage, mounted):
    (mount / "a").mkdir()
    stage("a/1000")
    commit(mount / "a/1000")
    if not mounted:
        mount.umount()
    call = calls()
    before = sorted(ckptfs("ls", store, "a/1000").stdout.split())
    assert call("open", store) == call("begin", "a/1000", "force") == call("write", "f", "some") == "ok"
    assert sorted(ckptfs("ls", store, "a/1000").stdout.split()) == before and call("commit", "{") == "EINVAL"
    assert sorted(ckptfs("ls", store, "a/1000").stdout.split()) == before
    assert call("commit", '{"metrics":{"loss":1}}') == "ok" and call("commit") == "EALREADY" and call("leave") == "ok"
    assert ckptfs("cat", store, "a/1000/f").stdout == "some" and ckptfs("ls", store, "a/1000").stdout.split() == ["f"] and ckptfs("ls", "--trash", store).stdout.split() == ["a/1000"]
    assert call("begin", "a/1000", "force") == call("abort") == call("leave") == "ok"
    assert ckptfs.json("sessions", store) == [] and ckptfs("cat", store, "a/1000/f").stdout == "some"
    assert call("begin", "a/2000", "force") == call("write", "f", "more") == call("commit") == call("leave") == "ok"
    if mounted:
        assert sorted(os.listdir(mount / "a")) == ["1000", "2000"] and os.listdir(mount / "a/1000") == ["f"]


@mounted_or_not
def test_save_by_force_goes_on_without_the_mount(calls, mount, store, ckptfs, commit, stage, mounted):
    stage("1000")
    commit(mount / "1000")
    call = calls()
    assert call("open", store) == call("begin", "1000", "force") == call("write", "f", "some") == "ok"
    mount.kill9()
    if mounted:
        mount.remount()
    assert call("commit") == call("leave") == "ok"
    assert ckptfs("ls", store, "1000").stdout.split() == ["f"] and ckptfs("ls", store).stdout.split() == ["1000"]


@mounted_or_not
def test_file_that_is_still_open_holds_up_the_commit(calls, mount, store, ckptfs, mounted):
    if not mounted:
        mount.umount()
        ckptfs("config", store, "open_writers=1s")
    else:
        mount.remount(["open_writers=1s"])
    call = calls()
    assert call("open", store) == call("begin", "1000") == call("write", "f", "some", "open") == "ok"
    assert call("commit") == "EBUSY" and call("find", "1000") == "ENOENT"
    assert call("abort") == "ok"


def test_store_that_is_not_mounted_is_the_savers_alone(calls, mount, store, ckptfs):
    mount.umount()
    call, other = calls(), calls()
    assert call("open", store) == other("open", store) == call("begin", "1000") == "ok"
    assert other("begin", "2000") == "EBUSY" and ckptfs("mount", store, mount.path, check=False).returncode == 1
    assert ckptfs("ls", store).stdout == "" and other("find", "1000") == "ENOENT", "who only reads may"
    assert call("commit") == "ok"
    assert other("begin", "2000") == other("commit") == "ok"
    mount.start()
    assert mount.listing() == ["1000", "2000"]


@pytest.mark.parametrize("after", ["umount", "remount", "kill -9", "kill -9, remount"])
def test_save_goes_on_when_the_mount_has_come_to_an_end(calls, mount, store, ckptfs, after):
    call = calls()
    assert call("open", mount.path) == call("begin", "1000") == call("write", "f", "some") == "ok"
    mount.kill9() if "kill" in after else mount.umount()
    if "remount" in after:
        mount.start()
    assert call("write", "g", "more") == call("commit") == "ok"
    assert ckptfs("ls", store, "1000").stdout.split() == ["f", "g"] and ckptfs.json("sessions", store) == []
    if "remount" not in after:
        mount.start()
    assert (mount / "1000/g").read_text() == "more"


@pytest.mark.parametrize("then", ["mounted", "umount"])
def test_save_that_somebody_else_ended_says_so(calls, mount, store, ckptfs, then):
    call, lost, other = calls(), calls(), calls()
    assert call("open", store) == call("begin", "1000") == call("write", "f", "some") == "ok"
    assert lost("open", store) == lost("begin", "2000") == "ok"
    sessions = {row["name"]: row["id"] for row in ckptfs.json("sessions", store)}
    ckptfs("commit", store, sessions["1000"])  # as an earlier attempt whose answer was lost
    ckptfs("abort", "--yes", store, sessions["2000"])
    if then == "umount":
        mount.umount()
    assert lost("commit") == lost("abort") == "ESTALE" and call("abort") == "ESTALE"
    assert other("open", store) == other("begin", "3000") == other("abort") == "ok", "what failed keeps nobody out"
    assert call("commit", '{"extras":{"a":1}}') == "ok" and call("commit") == "EALREADY"
    assert call("find", "1000").endswith(' {"extras":{"a":1}}') and ckptfs("cat", store, "1000/f").stdout == "some"


def test_commit_whose_answer_was_lost_is_on_disk_before_it_is_answered(calls, mount, store, ckptfs, world):
    """The mount that made it may have died before all of it was."""
    syncs = BadSyncs(world)
    call = calls(prefix=syncs.prefix)
    assert call("open", store) == call("begin", "1000") == call("write", "f", "some") == "ok"
    [session] = ckptfs.json("sessions", store)
    ckptfs("commit", store, session["id"])
    mount.kill9()
    syncs.die("s")
    assert call("commit") == call("commit") == "EIO", "it is listed, but nobody knows that it is on disk"
    syncs.live()
    syncs.count()
    assert call("commit") == "ok" and "s" in syncs.counted()
    assert ckptfs("cat", store, "1000/f").stdout == "some"


def test_steps_are_where_their_own_store_is_mounted(calls, mount, store, scratch, world, stage, commit):
    stage("1000")
    commit(mount / "1000")
    call = calls()
    assert call("open", mount.path) == "ok" and call("find", "1000") == f"1000 1 {mount / '1000'} {{}}"
    mount.umount()
    Mount.new(world, scratch / "other", path=mount.path)
    assert call("find", "1000") == "1000 1 - {}"


@mounted_or_not
def test_library_verb_and_mount_give_one_answer(calls, mount, store, ckptfs, mounted):
    ckptfs("policy", "set", store, "-", input='{"save": {"any": [{"fixed_interval": {"interval": 10}}, {"time_interval": {"save_interval_secs": 1}}]}, "skip_zero": true}')
    if not mounted:
        mount.umount()

    def verb(step):
        return ckptfs("should-save", store, str(step), check=False).stdout.strip()
    call = calls()
    assert call("open", store) == "ok"
    assert [call("should", step) for step in (10, 10, 0)] == ["permanent", "permanent", "no"] and verb(10) == "yes permanent fixed_interval"
    time.sleep(1.1)
    assert call("should", 12) == "temporary" and verb(12) == "yes temporary time_interval"
    assert verb(13) == "no" and call("should", 13) == "no" and call("should", 13, "force") == "permanent" and verb(13) == "yes permanent force"
    if mounted:
        assert (mount / ".ckptfs/should_save/12").read_text() == "1 temporary time_interval\n"
    assert call("should", -1) == "EINVAL" and call("should", "nosuch/5") == "no", "a run of its own, whose folder is still to be made"
    (store / "tree/run7").mkdir()
    assert call("should", "run7/0", "force") == "permanent" and call("should", "run7/20", 1) == "20: -1 of 0, temporary" and call("should", 20) == "permanent"


def test_process_that_saves_may_ask_meanwhile(calls, mount, store, ckptfs):
    """The store is open in it already, and nobody else could ask."""
    ckptfs("policy", "set", store, "-", input='{"save": {"fixed_interval": {"interval": 10}}}')
    mount.umount()
    call, other = calls(), calls()
    assert call("open", store) == other("open", store) == call("begin", "1000") == "ok"
    assert call("should", 1010) == "permanent" and call("should", 1011) == "no" and call("should", 1012, 1) == "1012: -1 of 0, temporary"
    assert other("begin", "2000") == "EBUSY"
    assert call("commit") == "ok" and other("should", 1012) == "temporary" and other("begin", "2000") == "ok"


@mounted_or_not
def test_save_of_the_library_is_in_progress(calls, mount, store, ckptfs, mounted):
    ckptfs("policy", "set", store, "-", input='{"save": {"continuous": {}}}')
    if not mounted:
        mount.umount()
    call = calls()
    assert call("open", store) == call("begin", "1000") == call("write", "model.bin", "weights") == "ok"
    assert call("should", 1001) == "no"
    assert call("commit") == "ok" and call("should", 1002) == "permanent"


@mounted_or_not
def test_function_of_the_users_decides_once_for_all(calls, mount, store, ckptfs, mounted):
    ckptfs("policy", "set", store, "-", input='{"save": {"specific_steps": {"steps": []}}}')
    if not mounted:
        mount.umount()
    call, other = calls(), calls()
    assert call("open", store) == other("open", store) == "ok"
    assert call("should", 5, 1) == "5: -1 of 0, temporary" and other("should", 5, 2) == "5: -1 of 0, temporary" and other("should", 5) == "temporary"
    assert ckptfs("should-save", store, "5").stdout == "yes temporary callback\n"
    assert call("should", 6, -32) == "6: -1 of 0, EPIPE" and call("should", 6, 3) == "6: -1 of 0, EINVAL" and call("should", 6) == "no" == other("should", 6, 2).split()[-1]
    assert call("begin", "7") == call("commit") == call("leave") == "ok"
    assert call("should", 7, 2) == "7: 7 of 1, no" and call("should", 3, 2) == "3: 7 of 1, no", "not after the latest, whatever it says"
    assert call("should", 8, 2) == "8: 7 of 1, permanent"
    ckptfs("preempt", "--at", "10", store)
    if not mounted:
        assert call("should", 9, 0) == "9: 7 of 1, no" and call("should", 10, 2) == "10: 7 of 1 preempted, permanent"
    else:
        (mount / "20").mkdir()
        trees.write(mount / "20/f", b"some")
        assert call("should", 9, 0) == "9: 7 of 1 saving, no" and call("should", 10, 2) == "10: 7 of 1 saving preempted, permanent"


def test_damaged_policy_decides_nothing(calls, mount, store):
    mount.umount()
    storelog.say(store, "policy", "{")
    mount.remount()
    call = calls()
    assert call("open", store) == "ok" and call("should", 5) == "EBADMSG"
    mount.umount()
    assert call("should", 5) == "EBADMSG"


def test_temporary_step_is_gone_with_the_next_one(calls, mount, store):
    mount.umount()
    call = calls()
    assert call("open", store) == "ok"
    for n in range(10):
        assert call("begin", str(n)) == call("commit", '{"temporary":true}') == call("leave") == "ok"
        assert not n or call("find", str(n - 1)) == "ENOENT"


def test_open_says_what_is_wrong(calls, mount, store, scratch):
    (scratch / "empty").mkdir()
    (mount / "a").mkdir()
    call = calls()
    for path, want in ((scratch / "nowhere", "ENOENT"), (scratch / "empty", "EMEDIUMTYPE"), ("/dev/null", "EMEDIUMTYPE"), (mount / "a", "EINVAL"), (store / "tree", "EINVAL"), ("", "ENOENT"), (mount.path, "ok")):
        assert call("open", path) == want, path
    (scratch / "gone").mkdir()
    call = calls(cwd=scratch / "gone")
    assert call("open", os.path.relpath(store, scratch / "gone")) == "ok"
    (scratch / "gone").rmdir()
    assert call("open", str(store).lstrip("/")) == "ENOENT"


def test_latest_leaves_out_what_the_mount_does(calls, mount, store, stage, commit):
    for name in ("1000", "2000", "3000"):
        stage(name)
        trees.write(mount / name / "model.pt", checkpoint_files.zip_file(1))
        commit(mount / name)
    call = calls()
    assert call("open", store) == "ok"
    assert call("latest", "", "step").startswith("3000 ") and call("latest", "", "nosuch") == "EINVAL" and call("latest", "a") == "ENOENT"
    trees.write(mount / "3000/model.pt", checkpoint_files.zip_file(2))  # a re-save begins
    assert call("latest", "", "step").startswith(f"2000 1 {mount / '2000'} ")
    assert call("find", "latest").startswith("2000 ") and call("find", "latest~1").startswith("1000 ")
    assert call("latest", "-", "step").startswith("2000 ") and call("resolve", "-") == "1 2000"
    shutil.rmtree(mount / "3000")
    assert call("find", "3000") == "ENOENT" and call("find", "latest~1").startswith("1000 ")
    trees.write(mount / "1000/.finalize", b'{"metrics":{"loss":2}}')
    assert call("find", "1000") == f'1000 2 {mount / "1000"} {{"metrics":{{"loss":2}}}}', "each call looks anew"


def test_latest_goes_by_the_setting_of_the_store(calls, mount, store, ckptfs, stage, commit):
    for name in ("3000", "1000"):
        stage(name)
        commit(mount / name)
    mount.umount()
    ckptfs("config", store, "latest_by=step")
    call = calls()
    assert call("open", store) == "ok"
    assert call("latest", "").startswith("3000 ") and call("latest", "", "commit").startswith("1000 ") and call("find", "latest").startswith("3000 ")


def test_wait_is_until_the_step_is_there_or_the_time_is_over(calls, mount, store, stage, commit, ckptfs):
    call, other = calls(), calls()
    assert call("open", mount.path) == other("open", mount.path) == "ok"
    stage("1000")
    assert call("wait", "1000", 300_000_000) == "ETIMEDOUT"
    waits = subprocess.Popen([ckptfs.path, "wait", "--timeout", "20s", store, "2000"])  # beside the verb, for the same
    commit(mount / "1000")
    assert call("wait", "1000", -1) == "ok" and call("wait", "1000", 300_000_000, "sealed") == "ETIMEDOUT"
    ckptfs("seal", store, "1000")
    assert call("wait", "1000", 10_000_000_000, "sealed") == "ok"
    assert other("begin", "2000") == other("commit") == call("wait", "2000", -1) == "ok"
    assert waits.wait(20) == 0


def test_threads_share_a_store_while_steps_come_and_go(calls, mount, store, stage, commit):
    call, other = calls(), calls()
    assert call("open", store) == other("open", store) == "ok"
    for n in range(10):
        stage(str(n))
        commit(mount / str(n))
    answers = []
    reader = threading.Thread(target=lambda: answers.append(call("list", "", 20, 8)))
    reader.start()
    for n in range(10, 20):
        assert other("begin", str(n)) == other("commit") == other("leave") == "ok"
        shutil.rmtree(mount / str(n - 10))
    reader.join(60)
    assert answers == ["ok"]


@mounted_or_not
def test_signal_does_not_end_a_call(calls, mount, store, mounted, ckptfs):
    mount.remount(["open_writers=2s"])
    if not mounted:
        mount.umount()
        ckptfs("config", store, "open_writers=2s")
    call = calls()
    assert call("handle") == call("open", store) == call("begin", "1000") == call("write", "f", "some", "open") == "ok"
    for after in (0.5, 1):
        threading.Timer(after, os.kill, (call.pid, signal.SIGUSR1)).start()
    assert call("commit") == "EBUSY"
    assert call("abort") == "ok"


@mounted_or_not
def test_signals_are_as_the_program_had_them(calls, mount, store, mounted):
    if not mounted:
        mount.umount()
    call = calls()
    assert call("handle") == "ok"
    before = call("signals")
    assert call("open", store) == call("begin", "1000") == "ok" and call("signals") == before
    assert call("commit") == "ok" and call("signals") == before
    assert call("begin", "1000") == "EEXIST" and call("signals") == before
