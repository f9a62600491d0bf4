"""ckptfs.save and load of JAX arrays: parts on several devices, memory that the program gives away, what is refused."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from support.fixtures import SLOW
from support.python_package import package  # noqa: F401

pytestmark = [pytest.mark.timeout(180), pytest.mark.skipif(SLOW > 1, reason="a library under a sanitizer needs a program under it")]


def run_jax(package, text, *arguments):
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(package.__file__)), "JAX_PLATFORMS": "cpu",
           "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}  # fmt: skip
    done = subprocess.run([sys.executable, "-c", text, *map(str, arguments)], env=env, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    return done.stdout


SPLIT = """
import sys
import jax, jax.numpy as jnp, numpy as np, ckptfs
from ckptfs import _arrays
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
def split(array, *axes):
    return jax.device_put(array, NamedSharding(mesh, P(*axes)))
saved = {
    "w": split(jnp.arange(48, dtype=jnp.bfloat16).reshape(6, 8), "x", "y"), "half": split(jnp.arange(8.0).reshape(2, 4), None, "y"),
    "all": split(jnp.arange(3)), "one": jnp.arange(4).astype(jnp.float8_e4m3fn), "none": split(jnp.zeros((0, 4)), None, "y"),
}
store = sys.argv[1]
extents, inside = [], _arrays._Set.read_all
_arrays._Set.read_all = lambda self, requests, *more: extents.extend((r.name, tuple(r.extent)) for r in requests if r.extent) or inside(self, requests, *more)
templates = jax.tree.map(jnp.zeros_like, saved), jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), saved)
for i, how in enumerate(({}, {"format": "raw", "shard_bytes": 64}, {"format": "safetensors"})):
    step = f"{store}/{i}"
    ckptfs.save_async({"net": saved, "host": np.arange(5), "lr": 0.5, "name": "x"}, step, metrics={"loss": 1.5}, **how).result()
    for template in templates:
        extents.clear()
        got = ckptfs.load(step, {"net": template, "host": np.zeros(5, int), "lr": 0.0, "name": None})
        assert (got["lr"], got["name"], got["host"].tolist()) == (0.5, "x", [0, 1, 2, 3, 4])
        for name, array in saved.items():
            new = got["net"][name]
            assert new.sharding == array.sharding and new.dtype == array.dtype and np.array_equal(np.asarray(new), np.asarray(array)), name
        want = [("net.all", (3,)), *[("net.half", (2, 2))] * 2, *[("net.none", (0, 2))] * 2, *[("net.w", (3, 4))] * 4]
        assert sorted(extents) == want, extents
    assert ckptfs.checks(step, read_data=True)["healthy"]
"""


@pytest.mark.parametrize("is_mounted", [True, False], ids=["mounted", "unmounted"])
def test_an_array_that_is_split_over_devices_is_saved_as_its_parts(package, ckptfs, mount, store, is_mounted):
    pytest.importorskip("jax")
    if not is_mounted:
        mount.umount()
    where = mount.path if is_mounted else store
    run_jax(package, SPLIT, where)
    assert [step.metrics for step in package.steps(where)] == [{"loss": 1.5}] * 3
    for i, (format, pieces) in enumerate((("descriptor", 4), ("descriptor", 4), ("safetensors", 1))):
        found = {a["name"]: a for a in ckptfs.json("arrays", where, str(i))}
        assert (found["net.w"]["format"], len(found["net.w"]["pieces"]), len(found["net.all"]["pieces"])) == (format, pieces, 1)


MEMORY = """
import ctypes, os, sys
import jax, jax.numpy as jnp, numpy as np, ckptfs
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

store = sys.argv[1]
before = jnp.arange(1 << 16, dtype=jnp.int32)
pointer = before.unsafe_buffer_pointer()
tensor = ckptfs.cuda._Tensor(before)
jax.jit(lambda a: a + 1, donate_argnums=0)(before).block_until_ready()
assert (tensor.pointer, tensor.bytes) == (pointer, 4 << 16)
assert np.array_equal(np.ctypeslib.as_array((ctypes.c_int32 * (1 << 16)).from_address(pointer)), np.arange(1 << 16))

turned = jnp.arange(12.0).reshape(3, 4)
turned = jax.device_put(turned, Format(Layout((1, 0)), turned.sharding))
ckptfs.save({"turned": turned, "small": jnp.arange(4, dtype=jnp.int4).astype(jnp.int8)}, store + "/0")
assert ckptfs.load(store + "/0")["turned"].tolist() == np.arange(12.0).reshape(3, 4).tolist()

w = jax.device_put(jnp.arange(8.0), NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x")))
with ckptfs.cuda.Pool(1 << 20, "host") as pool:
    with ckptfs.cuda.save_async(pool, {"w": w}, store, 1):
        pass
    save = ckptfs.cuda.save_async(pool, {"w": w}, store, 1)
    child = os.fork()
    if not child:
        save.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    save.commit()
    try:
        ckptfs.cuda.save_async(pool, {"w": w}, store, 1)
    except ckptfs.Error as e:
        print(e.strerror)
    ckptfs.cuda.save(pool, {"w": w + 1}, store, 1, force=True)
    try:
        ckptfs.cuda.load(pool, {"w": w}, store, 1)
    except ValueError as e:
        print(e)
assert ckptfs.load(store + "/1")["w"].tolist() == (np.arange(8.0) + 1).tolist()
print([(step.name, step.version) for step in ckptfs.steps(store)])
try:
    ckptfs.save({"state": [jax.random.key(0)]}, store + "/2")
except TypeError as e:
    print(e)
"""


def test_memory_of_jax_is_kept_given_up_and_never_written_to(package, mount):
    pytest.importorskip("jax.experimental.layout")
    said = run_jax(package, MEMORY, mount.path).splitlines()
    assert said[:3] == ["a step of this name is there; overwrite=True saves over it", "w: it is not contiguous, or is no array whose memory can be written to", "[('0', 1), ('1', 2)]"]
    assert said[3].startswith("state.0: it is a key array of JAX: save jax.random.key_data() of it") and len(said) == 4


PMAP = """
import sys
import jax, jax.numpy as jnp, numpy as np, ckptfs
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

store = sys.argv[1]
rows, whole = jax.pmap(lambda x: 2 * x), jnp.arange(32.0).reshape(4, 8)
mapped = {"rows": rows(whole), "each": rows(jnp.arange(4.0))}
if not hasattr(jax.sharding, "PmapSharding"):
    # Of this JAX a mapped axis is a slice of one. That of older ones is an int, and the axis is gone.
    class Older:
        __module__, is_fully_replicated = "jax.stub", False

        def __init__(self, of):
            self.of, self.shape, self.dtype, self.sharding = of, of.shape, of.dtype, of.sharding
            self.addressable_shards = [type("Shard", (), {"index": (s.index[0].start, *s.index[1:]), "data": s.data[0]}) for s in of.addressable_shards]

        devices = lambda self: self.of.devices()
        __array__ = lambda self, *a, **more: np.asarray(self.of)
        is_deleted = lambda self: False
        __dlpack__ = addressable_shards = None

    inside = jax.make_array_from_callback
    jax.make_array_from_callback = lambda shape, sharding, part: inside(shape, sharding, lambda index: part((index[0].start, *index[1:]))[None])
    saved = {n: Older(a) for n, a in mapped.items()}
else:
    saved = mapped
for i, format in enumerate((None, "raw", "safetensors")):
    ckptfs.save(saved, f"{store}/{i}", format=format)
    got = ckptfs.load(f"{store}/{i}", mapped)
    for name, array in mapped.items():
        assert np.array_equal(np.asarray(got[name]), np.asarray(array)) and got[name].sharding == array.sharding, name
        assert np.array_equal(np.asarray(ckptfs.arrays(f"{store}/{i}")[name]), np.asarray(array)), name
"""


def test_an_axis_that_pmap_takes_away_is_a_part_of_one_row(package, ckptfs, mount):
    pytest.importorskip("jax")
    run_jax(package, PMAP, mount.path)
    found = {a["name"]: a for a in ckptfs.json("arrays", mount.path, "0")}
    assert {n: len(a["pieces"]) for n, a in found.items()} == {"rows": 4, "each": 4}
    assert found["rows"]["shape"] == [4, 8]


REFUSED = """
import sys
import jax, jax.numpy as jnp, numpy as np, ckptfs
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

store = sys.argv[1]
over = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))
good = {"split": jax.device_put(jnp.arange(8.0), over), "one": jax.device_put(jnp.float32(3), NamedSharding(over.mesh, P())), "far": jax.device_put(jnp.arange(2), jax.devices()[2])}
gone, gone_split, given, keys = jnp.arange(4.0), jax.device_put(jnp.arange(8.0), over), jnp.arange(8.0), jax.random.split(jax.random.key(0), 4)
gone.delete(), gone_split.delete(), jax.jit(lambda a: a + 1, donate_argnums=0)(given)
for leaf in (gone, gone_split, given, keys[0], keys, jax.device_put(keys, over), jnp.ones(4, jnp.int4), jax.device_put(jnp.ones(4, jnp.int4), over), jnp.ones(4, jnp.float8_e4m3)):
    said = set()
    for beside in (good, {}):
        try:
            ckptfs.save({**beside, "net": [{"w": leaf}]}, store + "/1")
        except (TypeError, ValueError, OSError) as e:
            said.add(f"{type(e).__name__} {getattr(e, 'strerror', e)}".replace("raw has", "it has").replace("safetensors has", "it has"))
    assert len(said) == 1, said
    print(*said)
assert ckptfs.steps(store) == []
ckptfs.save(good, store + "/1")
assert ckptfs.load(store + "/1", good)["one"] == 3 and ckptfs.load(store + "/1", good)["far"].devices() == {jax.devices()[2]}
print({n: len(a) for n, a in ckptfs.load(store + "/1").items() if a.shape})
"""


def test_arrays_that_nobody_could_save_are_refused_by_their_name(package, ckptfs, mount):
    pytest.importorskip("jax")
    said = run_jax(package, REFUSED, mount.path).splitlines()
    gone = "ValueError net.0.w: its memory was given up: the array was deleted, or donated to a function"
    key = "TypeError net.0.w: it is a key array of JAX: save jax.random.key_data() of it, and load that with jax.random.wrap_key_data()"
    small = "Error net.0.w: it has no dtype int4"
    assert said == [gone] * 3 + [key] * 3 + [small] * 2 + ["Error net.0.w: no dtype is called float8_e4m3", "{'split': 8, 'far': 2}"]
    assert {a["name"]: len(a["pieces"]) for a in ckptfs.json("arrays", mount.path, "1")} == {"split": 4, "one": 1, "far": 1}


class Part:
    """A JAX array of two processes, as one of them has it."""

    __module__ = "jax.stub"
    shape, is_fully_replicated, sharding = (4,), False, SimpleNamespace(device_set={0, 1})
    addressable_shards = [SimpleNamespace(index=(slice(0, 2),), data=np.zeros(2))]
    version = "cpu"

    def __dlpack__(self):
        raise AssertionError

    def is_deleted(self):
        return False

    def devices(self):
        return [SimpleNamespace(client=SimpleNamespace(platform_version=self.version))]


def test_parts_in_other_processes_are_refused(package, mount):
    for format in (None, "safetensors", "raw"):
        with pytest.raises(TypeError, match="net.w: other processes have parts of it"):
            package.save({"net": {"w": Part()}}, mount / "1", format=format)
    assert package.steps(mount.path) == []


@pytest.mark.parametrize("version, is_on_cuda", [("cpu", False), ("PJRT C API\ncuda 12090", True), ("rocm 60000", False)])
def test_memory_of_cuda_is_known_by_the_client_of_its_devices(package, version, is_on_cuda):
    array = Part()
    array.version = version
    assert package._state._is_on_gpu(array) == is_on_cuda
