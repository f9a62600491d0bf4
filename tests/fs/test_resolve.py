"""resolve: which checkpoint a run loads, in MaxText's order, mounted and not; and which one never."""

import json
import os
import shutil
import subprocess

import pytest

from support import trees
from support.fixtures import needs_root
from support.mounting import Mount

pytestmark = pytest.mark.timeout(60)

mounted_or_not = pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "unmounted"])
SCRATCH = {"mode": "scratch", "path": None, "step": None, "store": None}


@pytest.fixture
def save(mount, commit):
    """Makes and completes a step: save("run/1000", ["items"]) has a file in `items`."""
    def make(name, folders=()):
        (mount / name).mkdir(parents=True)
        for folder in folders:
            (mount / name / folder).mkdir()
        trees.write(mount / name / (folders[0] if folders else ".") / "model.bin", name.encode())
        commit(mount / name)
    return make


@pytest.fixture
def resolve(ckptfs, mount, store):
    """resolve(RUN, option=...) -> its JSON; what a line says is the same, and so is the exit status."""
    def ask(run, env=None, cwd=None, **options):
        words = [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), str(value))] + (["--run", str(run)] if run else [])
        answer = ckptfs("resolve", "--json", *words, check=False, env=env, cwd=cwd)
        line = ckptfs("resolve", *words, check=False, env=env, cwd=cwd)
        assert answer.returncode == line.returncode, (answer, line)
        if "error" in json.loads(answer.stdout):
            assert line.returncode == 2 and line.stdout == "" and line.stderr.startswith("ckptfs: "), line
            return line.stderr
        found = json.loads(answer.stdout)
        where = found["path"] or (f"{found['store']}/{found['step']}" if found["step"] else None)
        assert line.stdout.split() == [found["mode"]] + ([where] if where else [])
        assert line.returncode == (1 if found["mode"] == "scratch" else 0)
        assert line.stderr == "" if found["path"] else line.stderr.count("\n") == 1
        return found
    return ask


def resumes(mount, store, mounted, step):
    return {"mode": "resume", "path": str(mount / step) if mounted else None, "step": step, "store": str(store)}


# --- The order --------------------------------------------------------------------------------------------------------


@mounted_or_not
def test_run_that_has_steps_resumes_whatever_else_was_given(mount, store, save, resolve, scratch, mounted):
    (scratch / "base").mkdir()
    for name in ("run/2000", "run/3000", "run/1000", "other/9000"):
        save(name)
    if not mounted:
        mount.umount()
    want = resumes(mount, store, mounted, "run/3000")
    for run in [store / "run"] + ([mount / "run"] if mounted else []):
        for options in ({}, {"load_parameters_path": scratch / "base"}, {"load_full_state_path": scratch / "base"}, {"load_parameters_path": scratch / "nowhere"}, {"load_parameters_path": ""}):
            assert resolve(run, **options) == want, (run, options)


@mounted_or_not
def test_run_without_steps_has_the_path_that_was_given(mount, store, save, resolve, scratch, mounted):
    (scratch / "base").mkdir()
    trees.write(scratch / "base.safetensors", b"x")
    save("other/9000")
    save("other/8000", ["items"])
    (mount / "exports").mkdir()
    trees.write(mount / "exports/config.json", b"{}")
    trees.write(mount / "weights.npy", b"\x93NUMPY")
    if not mounted:
        mount.umount()
    at = mount.path if mounted else store
    seen = (lambda path: str(mount / path)) if mounted else (lambda path: None)
    plain = (lambda path: str(mount / path)) if mounted else (lambda path: str(store / "tree" / path))
    step = {"store": str(store), "step": "other/8000"}
    cases = [(scratch / "base", {"path": str(scratch / "base"), "step": None, "store": None}), (scratch / "base.safetensors", {"path": str(scratch / "base.safetensors"), "step": None, "store": None}),
             (store / "other/8000", {"path": seen("other/8000"), **step}), (at / "other/8000", {"path": seen("other/8000"), **step}), (at / "other/latest", {"path": seen("other/8000"), **step}),
             (at / "other/latest~1", {"path": seen("other/9000"), "step": "other/9000", "store": str(store)}), (at / "other/8000/items", {"path": seen("other/8000/items"), **step}),
             (at / "other/8000/items/model.bin", {"path": seen("other/8000/items/model.bin"), **step}), (at / "exports", {"path": plain("exports"), "step": None, "store": str(store)}),
             (at / "weights.npy", {"path": plain("weights.npy"), "step": None, "store": str(store)})]
    for path, want in cases:
        assert resolve(at / "run", load_parameters_path=path) == {"mode": "parameters", **want}, path
        assert resolve(at / "run", load_full_state_path=path) == {"mode": "full_state", **want}, path
        if want["path"] and want["step"]:
            assert os.path.exists(want["path"])


@mounted_or_not
def test_nothing_at_all_is_scratch(mount, store, stage, resolve, ckptfs, mounted):
    stage("1000")
    (mount / "run").mkdir()
    if not mounted:
        mount.umount()
    for run in (store, store / "run", store / "a new run"):
        assert resolve(run) == SCRATCH
    quiet = ckptfs("resolve", "--quiet", "--run", store, check=False)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (1, "scratch\n", "")


def test_path_that_leads_to_nothing_is_a_failure_and_not_scratch(mount, store, save, stage, resolve, scratch):
    save("other/1000")
    stage("other/2000")
    (scratch / "x.orbax-checkpoint-tmp").mkdir()
    for path, words in ((scratch / "nowhere", "no such checkpoint"), (mount / "other/3000", "no such checkpoint"), (mount / "other/1000/items", "no such checkpoint"),
                        (mount / "other/1000/model.bin/x", "no such checkpoint"), (mount / "other", "holds steps"), (mount.path, "holds steps"), (store, "holds steps"),
                        (mount / "other/2000", "no such checkpoint"), (scratch / "x.orbax-checkpoint-tmp", "not complete"), (mount / ".ckptfs/trash/1000", "no such checkpoint"),
                        ("gs://bucket/base", "object stores come in a later version")):
        said = resolve(mount / "run", load_parameters_path=path)
        assert isinstance(said, str) and f"{path}: {words}" in said, said
    assert resolve(mount / "run") == SCRATCH


def test_both_paths_are_an_error_even_where_the_run_resumes(mount, save, ckptfs):
    save("1000")
    done = ckptfs("resolve", "--run", mount.path, "--load-parameters-path", "/a", "--load-full-state-path", "/b", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "at most one of `load_parameters_path` or `load_full_state_path` should be set" in done.stderr.lower()
    one = ckptfs("resolve", "--run", mount.path, "--load-parameters-path", "", "--load-full-state-path", "/b")
    assert one.stdout == f"resume {mount / '1000'}\n", "an empty one is none"


# --- The path -----------------------------------------------------------------------------------------------------------


@mounted_or_not
def test_items_may_stand_before_the_step_or_in_it(mount, store, save, resolve, scratch, mounted):
    save("new/checkpoints/1000", ["items"])
    save("old/checkpoints/items/1000")
    (scratch / "plain/checkpoints/2000/items").mkdir(parents=True)
    (scratch / "plain/checkpoints/items/3000").mkdir(parents=True)
    if not mounted:
        mount.umount()
    at = mount.path if mounted else store
    for base, path, want in ((at, "new/checkpoints/items/1000", "new/checkpoints/1000/items"), (at, "new/checkpoints/1000/items", "new/checkpoints/1000/items"),
                             (at, "old/checkpoints/1000/items", "old/checkpoints/items/1000"), (at, "old/checkpoints/items/1000", "old/checkpoints/items/1000"),
                             (scratch, "plain/checkpoints/items/2000", "plain/checkpoints/2000/items"), (scratch, "plain/checkpoints/2000/items", "plain/checkpoints/2000/items"),
                             (scratch, "plain/checkpoints/3000/items", "plain/checkpoints/items/3000")):
        found = resolve(store / "run", load_full_state_path=base / path)
        assert found["path"] == (str(base / want) if mounted or base == scratch else None), path
        if base != scratch:
            assert found["step"] == want.removesuffix("/items")
    assert "no such checkpoint" in resolve(store / "run", load_full_state_path=at / "new/checkpoints/items/9")


def test_path_into_another_store(mount, store, save, resolve, ckptfs, scratch, world):
    (scratch / "out").mkdir()
    trees.write(scratch / "out/f", b"x")
    base = scratch / "base"
    ckptfs("init", base)
    ckptfs("save", base, scratch / "out", "7")
    want = {"mode": "parameters", "path": None, "step": "7", "store": str(base)}
    assert resolve(mount.path, load_parameters_path=base / "7") == want
    other = Mount.new(world, base, scratch / "mnt2")
    for path in (base / "7", other / "7", other / "latest"):
        assert resolve(mount.path, load_parameters_path=path) == want | {"path": str(other / "7")}
    assert "holds steps" in resolve(mount.path, load_parameters_path=other.path)


def test_relative_paths_are_those_of_the_current_directory(mount, save, resolve):
    save("a/1000")
    save("b/2000")
    assert resolve(None, cwd=mount / "a")["step"] == "a/1000"
    assert resolve("a", cwd=mount.path)["step"] == "a/1000" and resolve("../b", cwd=mount / "a")["step"] == "b/2000"
    assert resolve(mount / "c", cwd=mount / "b", load_parameters_path="2000")["path"] == str(mount / "b/2000")
    assert resolve(None, cwd="/", env=dict(os.environ, CKPTFS_STORE=str(mount / "b")))["step"] == "b/2000"


# --- The run ------------------------------------------------------------------------------------------------------------


@mounted_or_not
def test_run_is_a_store_a_folder_its_checkpoints_or_a_step_itself(mount, store, save, resolve, mounted):
    for name in ("maxtext/checkpoints/100", "maxtext/checkpoints/200", "maxtext/eval/9000", "run-5", "run-6"):
        save(name)
    if not mounted:
        mount.umount()
    at = mount.path if mounted else store
    for run, want in (("maxtext", "maxtext/checkpoints/200"), ("maxtext/checkpoints", "maxtext/checkpoints/200"), (".", "run-6"), ("run-5", "run-5"), ("maxtext/eval", "maxtext/eval/9000"),
                      ("latest~1", "run-5")):
        assert resolve(at / run) == resumes(mount, store, mounted, want), run
    assert "is inside a step" in resolve(at / "run-5/model.bin")
    for name in ("run-5", "run-6"):
        (shutil.rmtree(mount / name) if mounted else None)
    if mounted:
        said = resolve(mount.path, load_parameters_path=mount / "maxtext/eval/9000")
        assert f"{mount.path}: several folders have steps" in said, "nobody knows whose they are"


@mounted_or_not
def test_store_whose_steps_are_all_in_one_folder_has_those(mount, store, save, resolve, mounted):
    save("run/1000")
    if not mounted:
        mount.umount()
    assert resolve(store) == resumes(mount, store, mounted, "run/1000")


def test_run_that_begins_in_a_directory_resumes_no_strangers_step(mount, save, resolve):
    save("old/1000")
    (mount / "new").mkdir()
    assert resolve(None, cwd=mount / "new") == SCRATCH


def test_directory_that_is_no_run_is_the_root(mount, save, resolve):
    (mount / "logs").mkdir()
    save("1000")
    save("maxtext/checkpoints/2000")
    assert resolve(None, cwd=mount / "logs")["step"] == "1000"
    assert resolve(None, cwd=mount / "maxtext")["step"] == resolve(None, cwd=mount / "maxtext/checkpoints")["step"] == "maxtext/checkpoints/2000"


@mounted_or_not
def test_each_order_has_its_own_newest(mount, store, save, resolve, mounted):
    for name, mtime in (("iter_0000300", 3000), ("iter_0000100", 4000), ("iter_0000200", 2000)):
        (mount / name).mkdir()
        trees.write(mount / name / "f", b"x")
        os.utime(mount / name, (mtime, mtime))
        trees.write(mount / name / ".finalize", b"")
    trees.write(mount / "latest_checkpointed_iteration.txt", b"100")
    if not mounted:
        mount.umount()
    for by, want in (("step", 300), ("commit", 200), ("timestamp", 200), ("mtime", 100), ("tracker", 100)):
        assert resolve(store, by=by)["step"] == f"iter_{want:07}", by
    assert resolve(store)["step"] == "iter_0000300"
    assert "no such order" in resolve(store, by="size")


def test_tracker_that_names_nothing_complete_leaves_it_to_the_path(mount, save, stage, resolve, scratch):
    save("iter_0000100")
    stage("iter_0000200")
    trees.write(mount / "latest_checkpointed_iteration.txt", b"200")
    assert resolve(mount.path, by="tracker") == SCRATCH
    assert resolve(mount.path, by="tracker", load_full_state_path=mount / "iter_0000100")["mode"] == "full_state"


# --- Never --------------------------------------------------------------------------------------------------------------


def half_written(mount, save):
    (mount / "3000").mkdir()
    trees.write(mount / "3000/model.bin", b"part")


def by_temporary_name(mount, save):
    (mount / "3000.orbax-checkpoint-tmp").mkdir()
    trees.write(mount / "3000.orbax-checkpoint-tmp/model.bin", b"all of it")


def deleted(mount, save):
    save("3000")
    shutil.rmtree(mount / "3000")


def being_removed(mount, save):
    """As rm -r begins, which has the step's own directory open."""
    save("3000")
    with os.scandir(mount / "3000") as top:
        next(top)
        os.unlink(mount / "3000/model.bin")


def written_over(mount, save):
    save("3000")
    trees.write(mount / "3000/model.bin", b"other")


@pytest.mark.parametrize("how", [half_written, by_temporary_name, deleted, being_removed, written_over])
def test_step_that_is_not_whole_is_never_loaded(mount, store, save, resolve, ckptfs, how):
    save("1000")
    save("2000")
    how(mount, save)
    for run in (mount.path, store):
        for by in ("step", "commit", "timestamp", "mtime"):
            assert resolve(run, by=by) == resumes(mount, store, True, "2000")
        assert ckptfs("latest", run).stdout == "2000\n"
    assert resolve(mount / "3000") == SCRATCH
    refused = resolve(mount / "run", load_parameters_path=mount / "3000")
    assert isinstance(refused, str) and refused.startswith(f"ckptfs: {mount / '3000'}: "), refused


def test_step_that_is_written_over_counts_again_once_it_is_whole(mount, store, save, resolve, commit):
    save("1000")
    trees.write(mount / "1000/model.bin", b"other")
    assert resolve(mount.path) == SCRATCH
    commit(mount / "1000")
    assert resolve(mount.path)["step"] == "1000"


@needs_root
def test_a_mount_that_is_dead_holds_nobody_up(mount, store, save, resolve):
    save("1000")
    mount.die()
    assert resolve(store)["step"] == "1000"


def test_readers_of_a_run_that_is_saved_to_never_get_a_part(mount, save, ckptfs):
    save("0")
    asker = subprocess.Popen(["sh", "-c", f"for i in $(seq 30); do set -- $('{ckptfs.path}' resolve --run '{mount.path}'); cat $2/model.bin || exit 1; echo; done"], stdout=subprocess.PIPE, text=True)
    for n in range(1, 60):
        save(str(n))
    out, _ = asker.communicate(timeout=50)
    read = [int(word) for word in out.split()]
    assert asker.returncode == 0 and read == sorted(read) and len(read) == 30
