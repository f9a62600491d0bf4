"""STEP/.views in a mount: arrays chosen, cut, cast and renamed by a name, next to the same made by NumPy and torch, bit for bit."""

import concurrent.futures
import errno
import json
import mmap
import os
import random
import subprocess

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from support import trees

pytestmark = pytest.mark.timeout(180)

BF16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng(33)


@pytest.fixture
def top(mount):
    (mount / "1000").mkdir()
    return mount / "1000"


def specials(shape):
    """Floats that are rounded every way, NaN and infinities among them."""
    n = int(np.prod(shape))
    bits = RNG.integers(0, 1 << 32, n, np.uint32)
    bits[:8] = [0x7FC00000, 0xFFC00001, 0x7F800000, 0xFF800000, 0x3F808000, 0x3F818000, 0x00000001, 0x7F7FFFFF]
    return bits.view(np.float32).reshape(shape)


def halves(shape):
    return RNG.integers(0, 1 << 16, int(np.prod(shape)), np.uint16).view(np.float16).reshape(shape)


MODEL = {
    "model.layers.0.weight": specials((10, 7)),
    "model.layers.0.bias": specials((10,)),
    "model.layers.1.weight": specials((33, 5)),
    "model.embed": halves((64, 16)),
    "model.ids": RNG.integers(0, 1 << 40, (13, 3)),
    "lm_head.weight": specials((3, 2, 8)),
    "step": np.array(7),
    "empty": np.zeros((0, 4), np.float32),
}


def write(top, arrays=MODEL):
    save_file(arrays, top / "model.safetensors")
    os.chmod(top / "model.safetensors", 0o644)


@pytest.fixture
def made(top, commit):
    write(top)
    commit(top)
    return MODEL


def cast(array, dtype):
    if array.dtype.kind != "f" and array.dtype != BF16:
        return array
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def same(got, want):
    """Bits, but for NaN: its payload after a cast is nobody's business."""
    want = np.asarray(want, order="C")
    if want.dtype == BF16 and got.dtype == np.dtype("V2"):
        got = got.view(BF16)
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if got.tobytes() == want.tobytes():
        return True
    with np.errstate(all="ignore"):
        nan = np.isnan(want.astype(np.float64))
    return np.array_equal(nan, np.isnan(got.astype(np.float64))) and got[~nan].tobytes() == want[~nan].tobytes()


def walk(top):
    return sorted(os.path.relpath(os.path.join(folder, name), top) for folder, _, files in os.walk(top) for name in files)


def check(view, want):
    """The folder of a view lists all of its arrays and no others; each is right as .npy and in model.safetensors."""
    assert walk(view) == sorted([*(f"{name}.npy" for name in want), "model.safetensors"])
    for name, array in want.items():
        path = view / f"{name}.npy"
        assert same(np.load(path), array), name
        if array.size:
            assert same(np.load(path, mmap_mode="r"), array), name
        assert os.stat(path).st_size == len(path.read_bytes())
    whole = view / "model.safetensors"
    loaded = load_file(whole)
    assert sorted(loaded) == sorted(want)
    assert all(same(loaded[name], array) for name, array in want.items())
    content = whole.read_bytes()
    assert os.stat(whole).st_size == len(content)
    with safe_open(whole, "pt") as f:  # which maps the file
        assert sorted(f.keys()) == sorted(want)
    return content


def names(*parts):
    return {name: array for name, array in MODEL.items() if name in parts or not parts}


def refused(act, *args):
    try:
        act(*args)
    except OSError as e:
        return errno.errorcode[e.errno]
    return None


def lines(mount, text):
    return [line for line in (mount / ".ckptfs/errors").read_text().splitlines() if text in line]


# --- What a view has ----------------------------------------------------------------------------------------------------------


def test_globs_choose_arrays(top, made):
    views = top / ".views"
    weights = ("model.layers.0.weight", "model.layers.1.weight")
    check(views / "only=model.layers.*.weight", names(*weights))
    check(views / "only=model.layers.**,not=**.bias", names(*weights))
    check(views / "only=model.layers.*.weight,only=step", names(*weights, "step"))
    check(views / "not=model.**,not=lm_head.*", names("step", "empty"))
    check(views / "only=model.safetensors%3Amodel.e*", names("model.embed"))


@pytest.mark.parametrize("dtype", ["bf16", "float16", "float64", "float32"])
def test_casts_are_those_of_numpy(top, made, dtype):
    numpy = BF16 if dtype == "bf16" else np.dtype(dtype)
    check(top / f".views/dtype={dtype}", {name: cast(array, numpy) for name, array in MODEL.items()})


@pytest.mark.parametrize(("shards", "axis"), [(3, 0), (4, 1), (8, 0), (40, 0), (1, 0), (2, 2)])
def test_shards_are_those_of_torch(top, made, shards, axis):
    whole = {name: torch.from_numpy(array) for name, array in MODEL.items()}
    for i in range(shards):
        want = {}
        for name, tensor in whole.items():
            if tensor.ndim <= axis:
                want[name] = MODEL[name]
                continue
            chunks = torch.chunk(tensor, shards, axis)
            none = torch.narrow(tensor, axis, tensor.shape[axis], 0)
            want[name] = (chunks[i] if i < len(chunks) else none).numpy()
        check(top / f".views/shard={i + 1}of{shards},axis={axis}", want)


def test_all_of_it_together(top, commit):
    write(top)
    (top / "lists").mkdir()
    trees.write(top / "lists/names.json", json.dumps({"model.layers.1.weight": "w.one", "model.safetensors:model.embed": "emb", "not there": "x"}).encode())
    trees.write(top / "lists/only.json", json.dumps(["model.**", "lm_head.weight"]).encode())
    trees.write(top / "lists/not.json", json.dumps(["**.bias", "model.ids"]).encode())
    commit(top)
    name = "only=@lists%2Fonly.json,not=@lists%2Fnot.json,shard=2of3,axis=1,dtype=bf16,rename=lists%2Fnames.json,prefix=p."
    want = {}
    for old, new in {"model.layers.0.weight": "model.layers.0.weight", "model.layers.1.weight": "w.one", "model.embed": "emb", "lm_head.weight": "lm_head.weight"}.items():
        want[f"p.{new}"] = cast(torch.chunk(torch.from_numpy(MODEL[old]), 3, 1)[1].numpy(), BF16)
    check(top / ".views" / name, want)


def test_stacked_layers_are_unrolled(top, commit):
    model = {
        "decoder.layers.mlp.kernel": specials((6, 3, 8)),
        "decoder.dense_layers.norm": specials((4, 3)),
        "embed": specials((5, 3)),
        "scale": specials((8,)),
    }
    write(top, model)
    commit(top)
    want = {"embed": model["embed"], "scale": model["scale"]}
    for i in range(3):
        want[f"decoder.layers_{i}.mlp.kernel"] = np.take(model["decoder.layers.mlp.kernel"], i, 1)
        want[f"decoder.dense_layers_{i}.norm"] = np.take(model["decoder.dense_layers.norm"], i, 1)
    check(top / ".views/unroll=1", want)
    check(top / ".views/unroll=0,only=embed", {f"embed.{i}": model["embed"][i] for i in range(5)})
    check(top / ".views/unroll=1,only=**.kernel,shard=2of4,axis=1",
          {f"decoder.layers_{i}.mlp.kernel": torch.chunk(torch.from_numpy(model["decoder.layers.mlp.kernel"][:, i].copy()), 4, 1)[1].numpy() for i in range(3)})


def test_names_are_escaped(top, commit):
    arrays = {"a,b": 1, "a/b": 2, "x=y": 3, "p%q": 4, "é": 5, "../up": 6, "a.npy/c": 7}
    save_file({name: np.full(3, i, np.float32) for name, i in arrays.items()}, top / "m.safetensors")
    (top / "model.safetensors").mkdir()
    np.save(top / "model.safetensors/z.npy", np.full(3, 8, np.float32))
    commit(top)
    views = top / ".views"
    for glob, path, i in [("a%2Cb", "a%2Cb", 1), ("a%2Fb", "a/b", 2), ("x=y", "x%3Dy", 3), ("x%3Dy", "x%3Dy", 3), ("p%25q", "p%25q", 4), ("é", "%C3%A9", 5),
                          ("..%2Fup", "%2E%2E/up", 6), ("a.npy%2Fc", "a%2Enpy/c", 7), ("model.safetensors%2Fz", "model%2Esafetensors/z", 8)]:
        view = views / f"only={glob}"
        assert walk(view) == sorted([f"{path}.npy", "model.safetensors"]), glob
        assert np.load(view / f"{path}.npy").tolist() == [i] * 3
        assert [a.tolist() for a in load_file(view / "model.safetensors").values()] == [[i] * 3]


def test_names_that_come_twice_have_their_tree(top, commit):
    for i, name in enumerate(("a", "b")):
        save_file({"w": np.full(4, i, np.float32)}, top / f"{name}.safetensors")
    save_file({"v": np.arange(2)}, top / "c.safetensors")
    commit(top)
    view = top / ".views/dtype=f64"
    assert walk(view) == ["a.safetensors%3Aw.npy", "b.safetensors%3Aw.npy", "model.safetensors", "v.npy"]
    assert np.load(view / "b.safetensors%3Aw.npy").tolist() == [1.0] * 4
    assert sorted(load_file(view / "model.safetensors")) == ["a.safetensors:w", "b.safetensors:w", "v"]
    assert walk(top / ".views/only=a.*:w") == ["model.safetensors", "w.npy"]


def test_cat_without_a_mount_has_the_bytes_of_the_mount(top, mount, store, commit, ckptfs):
    write(top)
    trees.write(top / "few.json", json.dumps(["model.layers.*.weight"]).encode())
    commit(top)
    views = ("dtype=bf16", "shard=2of3,axis=0,prefix=part.", "only=@few.json", "only=model.**,not=**.bias")
    places = [".arrays", *(f".views/{view}" for view in views)]
    want = {f"{place}/{path}": (top / place / path).read_bytes() for place in places for path in walk(top / place)}
    assert len(want) > 20 and all(any(path.startswith(f"{place}/") for path in want) for place in places)
    step = top.name
    mount.umount()

    def cat(*words):
        return subprocess.run([ckptfs.path, "cat", store, *words], capture_output=True)

    for i, (path, content) in enumerate(want.items()):
        done = cat(step, path) if i % 2 else cat(f"{step}/{path}")
        assert (done.returncode, done.stdout == content) == (0, True), (path, done.stderr)
    for path, word in [(".views/dtype=f17/x.npy", b"dtype"), (".views/dtype=bf16/no.npy", b"no array of the view"), (".views/dtype=bf16", b"is a directory"),
                       (".views", b"is a directory"), (".arrays/no.npy", b"no array has this path")]:  # fmt: skip
        done = cat(step, path)
        assert (done.returncode, done.stdout) == (1, b"") and word in done.stderr, (path, done.stderr)


# --- Reading ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["passthrough", "daemon"], indirect=True)
def test_parts_at_any_offset_hot_and_packed(mount, store, top, commit, ckptfs):
    model = {"big": specials((700, 301)), "half": halves((1000, 3)), "n": np.arange(1001, dtype=np.uint8)}
    write(top, model)
    commit(top)
    for packed in (False, True):
        if packed:
            mount.umount()
            ckptfs("cool", store, "1000")
            assert not list(store.glob("sessions/*/model.safetensors"))
            mount.start()
        for view in ("dtype=bf16", "shard=2of3,axis=1", "shard=2of3", "shard=3of3,axis=1,dtype=float64"):
            path = top / ".views" / view / "model.safetensors"
            whole = path.read_bytes()
            arrays = load_file(path)
            for name in model:
                npy = top / ".views" / view / f"{name}.npy"
                assert npy.read_bytes().endswith(arrays[name].tobytes())
            dice = random.Random(view)
            with open(path, "rb", buffering=0) as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                for _ in range(200):
                    at = dice.randrange(len(whole))
                    size = dice.choice([1, 3, 7, 4097, 70_001])
                    assert os.pread(f.fileno(), size, at) == whole[at:at + size]
                    assert mapped[at:at + size] == whole[at:at + size]
                assert os.pread(f.fileno(), 10, len(whole)) == b""


def test_it_is_in_no_listing_and_lists_no_views(top, made):
    view = top / ".views/dtype=bf16"
    assert view.is_dir() and os.listdir(view)
    assert ".views" not in os.listdir(top) and os.listdir(top / ".views") == []
    acts = {"create": lambda: open(view / "new", "x"), "write": lambda: open(view / "step.npy", "r+b"), "mkdir": lambda: os.mkdir(top / ".views/only=x"),
            "unlink": lambda: os.unlink(view / "step.npy"), "rmdir": lambda: os.rmdir(view), "rmdir it": lambda: os.rmdir(top / ".views"),
            "rename it": lambda: os.rename(top / ".views", top / "new"), "chmod": lambda: os.chmod(view / "step.npy", 0o600)}
    assert {what: refused(act) for what, act in acts.items()} == dict.fromkeys(acts, "EROFS")


def test_what_the_step_has_itself_wins(top, commit):
    (top / ".views").mkdir()
    trees.write(top / ".views/own", b"of the step")
    write(top)
    commit(top)
    assert os.listdir(top / ".views") == ["own"] and refused(os.stat, top / ".views/dtype=bf16") == "ENOENT"


def test_an_edit_has_new_views(mount, top, commit):
    np.save(top / "a.npy", np.arange(1000, dtype=np.float32))
    commit(top)
    path = top / ".views/dtype=f64/a.npy"
    with open(path, "rb") as f:
        head = f.read(128)
        np.save(top / "new.npy", np.zeros(10, np.float32))
        os.replace(top / "new.npy", top / "a.npy")
        commit(top)
        assert np.load(path).tolist() == [0.0] * 10
        assert np.frombuffer((head + f.read())[128:], np.float64).tolist() == list(range(1000))


# --- Wrong names --------------------------------------------------------------------------------------------------------------


WRONG = {
    "model": ("model is no KEY=VALUE", "only=model.**"),
    "onyl=model.**": ("onyl= is not known", "did you mean only=?"),
    "dtype=int8": ("dtype=int8 is not valid", "a floating type"),
    "shard=9of8": ("shard=9of8 is not valid", "shard=3of8"),
    "axis=0": ("axis= stands without shard=", "shard=3of8,axis=0"),
    "only=nothing.**": ("no array is chosen", "ckptfs arrays"),
    "only=@lists%2Fabsent.json": ("lists/absent.json is no file of the step", "%2F"),
    "only=@model.safetensors": ("model.safetensors is no JSON", "in JSON"),
    "only=@object.json": ("object.json: it is no list of globs", "lm_head.weight"),
    "rename=list.json": ("list.json: it is no object of names", "new.weight"),
    "rename=both.json": ("two arrays would be called model.ids", "not="),
    "prefix=a%2": ("an escape that is not valid", "%25"),
}


def test_a_wrong_name_is_not_there_and_a_line_says_why(mount, top, commit):
    write(top)
    trees.write(top / "object.json", b'{"a": "b"}')
    trees.write(top / "list.json", b'["a"]')
    trees.write(top / "both.json", b'{"step": "model.ids"}')
    commit(top)
    for name, (why, hint) in WRONG.items():
        assert refused(os.stat, top / ".views" / name) == "ENOENT", name
        assert refused(open, top / ".views" / name / "model.safetensors") == "ENOENT", name
        [line] = lines(mount, f"no view {name}: ")
        assert why in line and hint in line and "\t1000\t" in line and "ENOENT" in line, line
    before = len(lines(mount, ""))
    assert refused(os.stat, top / ".views/dtype=bf16/nothing.npy") == refused(os.stat, top / ".views/dtype=bf16/model") == "ENOENT"
    assert len(lines(mount, "")) == before, "an array that a view has not is no wrong name"


def test_views_without_end_are_there_for_many_at_once(mount, top, made):
    def look(i):
        assert refused(os.stat, top / f".views/only=absent{i}") == "ENOENT"
        view = top / f".views/shard=1of{i},prefix=p."
        want = torch.chunk(torch.from_numpy(MODEL["model.ids"]), i)[0].numpy()
        return same(np.load(view / "p.model.ids.npy"), want) and same(load_file(view / "model.safetensors")["p.model.ids"], want)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(look, range(1, 600)))
    check(top / ".views/shard=1of1", MODEL)


# --- Rights -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["allow_other"], indirect=True)
def test_who_may_not_read_a_file_may_not_read_views_of_it(mount, top, commit, agent):
    if os.geteuid() != 0:
        pytest.skip("only root can be other users")
    save_file({"open": np.arange(3, dtype=np.float32)}, top / "open.safetensors")
    save_file({"closed": np.arange(4, dtype=np.float32)}, top / "closed.safetensors")
    trees.write(top / "names.json", b'{"open": "secret"}')
    for path, mode in {"open.safetensors": 0o644, "closed.safetensors": 0o600, "names.json": 0o600}.items():
        os.chmod(top / path, mode)
    os.chmod(top, 0o755)
    commit(top)
    a = agent(uid=4321)
    read = "open(path, 'rb').read()[-8:].hex()"
    views = str(top / ".views")
    last = np.float64(2).tobytes().hex()
    for path in ("dtype=f64/open.npy", "dtype=f64,only=open/open.npy", "dtype=f64,only=open/model.safetensors"):
        assert a.run(read, path=f"{views}/{path}") == last, path
    for path in ("dtype=f64/closed.npy", "dtype=f64/model.safetensors", "rename=names.json,only=open/secret.npy"):
        assert a.errno_of(read, path=f"{views}/{path}") == "EACCES", path
    assert a.errno_of("os.listdir(path)", path=f"{views}/dtype=f64") == "EACCES"
    assert a.errno_of("os.listdir(path)", path=f"{views}/rename=names.json,only=open") == "EACCES"
    assert sorted(a.run("os.listdir(path)", path=f"{views}/dtype=f64,only=open")) == ["model.safetensors", "open.npy"]
    os.chmod(top / "closed.safetensors", 0o644)
    assert len(bytes.fromhex(a.run(read, path=f"{views}/dtype=f64/closed.npy"))) == 8, "a change of rights counts at once"
    assert len(bytes.fromhex(a.run(read, path=f"{views}/dtype=f64/model.safetensors"))) == 8
    os.chmod(top, 0o700)
    assert a.errno_of(read, path=f"{views}/dtype=f64/open.npy") == "EACCES"
