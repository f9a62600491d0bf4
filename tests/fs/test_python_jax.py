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
    assert said[3].startswith("state.0: JAX array with PRNGKey dtype") and len(said) == 4


class Part:
    """A JAX array of two processes, as one of them has it."""

    __module__ = "jax.stub"
    shape, is_fully_replicated, sharding = (4,), False, SimpleNamespace(device_set={0, 1})
    addressable_shards = [SimpleNamespace(index=(slice(0, 2),), data=np.zeros(2))]
    version = "cpu"

    def __dlpack__(self):
        raise AssertionError

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
