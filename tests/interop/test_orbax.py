"""Orbax, unmodified, with a mount as its directory: v0 CheckpointManager and v1 with partial saving."""

import os
import signal
import subprocess
import sys
import time

import pytest

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint as v0  # noqa: E402
import orbax.checkpoint.experimental.v1 as v1  # noqa: E402

from support import trees  # noqa: E402
from support.fixtures import both_modes  # noqa: E402
from support.mounting import wait_until  # noqa: E402
from support.watcher import watch  # noqa: E402

pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

# Directories that a manager may be given: the mount's root, and folders in it.
places = pytest.mark.parametrize("place", [".", "run42/checkpoints"])


def state(n):
    dice = np.random.default_rng(n)
    return {"params": {f"layer{i}": {"w": jnp.asarray(dice.standard_normal((96, 64 + i)), jnp.float32), "b": jnp.asarray(dice.standard_normal(64), jnp.bfloat16)}
                       for i in range(6)},
            "opt": [jnp.arange(n + 3), jnp.asarray(dice.standard_normal(10))], "step": jnp.asarray(n)}


def like(tree):
    return jax.tree.map(jnp.zeros_like, tree)


def same(a, b):
    def equal(x, y):
        x, y = np.asarray(x), np.asarray(y)
        return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
    return jax.tree.all(jax.tree.map(equal, a, b))


def make_folder(mount, place):
    path = mount / place
    path.mkdir(parents=True, exist_ok=True)
    return path


def manager(path, **options):
    return v0.CheckpointManager(path, options=v0.CheckpointManagerOptions(max_to_keep=None, **options))


def restore(m, n):
    return m.restore(n, args=v0.args.StandardRestore(like(state(n))))


@both_modes
@places
@pytest.mark.parametrize("background", [True, False], ids=["async", "sync"])
def test_v0_manager_saves_restores_and_goes_on_after_a_remount(world, mount, place, background):
    path = make_folder(mount, place)
    with watch(world, path) as w:
        with manager(path, enable_async_checkpointing=background, best_fn=lambda metrics: metrics["loss"]) as m:
            for n in range(4):
                m.save(n, args=v0.args.StandardSave(state(n)), metrics={"loss": 1.0 / (n + 1)})
            m.wait_until_finished()
            assert (m.all_steps(), m.latest_step()) == ([0, 1, 2, 3], 3)
            assert m.metrics(2) == {"loss": 1.0 / 3}
    w.check(expect=4)
    assert sorted(os.listdir(path)) == ["0", "1", "2", "3"]
    before = trees.describe(path)
    mount.remount()
    assert trees.describe(path) == before
    with manager(path) as m:
        assert (m.all_steps(), m.latest_step()) == ([0, 1, 2, 3], 3)
        assert all(same(restore(m, n), state(n)) for n in range(4))
        m.save(10, args=v0.args.StandardSave(state(10)))
        m.wait_until_finished()
        assert m.latest_step() == 10 and same(restore(m, 10), state(10))


def test_v0_manager_with_a_prefix_and_several_items(world, mount):
    path = make_folder(mount, "ckpts")
    names = v0.step.standard_name_format(step_prefix="step", step_format_fixed_length=8)
    with watch(world, path) as w:
        with v0.CheckpointManager(path, options=v0.CheckpointManagerOptions(max_to_keep=None, step_name_format=names)) as m:
            for n in (100, 200):
                m.save(n, args=v0.args.Composite(model=v0.args.StandardSave(state(n)), extra=v0.args.JsonSave({"seed": n})))
            m.wait_until_finished()
    w.check(expect=2)
    assert sorted(os.listdir(path)) == ["step_00000100", "step_00000200"]
    mount.remount()
    with v0.CheckpointManager(path, options=v0.CheckpointManagerOptions(step_name_format=names, read_only=True)) as m:
        got = m.restore(200, args=v0.args.Composite(model=v0.args.StandardRestore(like(state(200))), extra=v0.args.JsonRestore()))
        assert same(got.model, state(200)) and got.extra == {"seed": 200}


KILLED = """
import os, sys
os.environ["JAX_PLATFORMS"] = "cpu"
import orbax.checkpoint as v0
sys.path.insert(0, os.path.dirname(sys.argv[2]))
import test_orbax
m = test_orbax.manager(sys.argv[1])
n = (m.latest_step() if m.latest_step() is not None else -1) + 1
while True:
    m.save(n, args=v0.args.StandardSave(test_orbax.state(n)))
    print(n, flush=True)
    n += 1
"""


@both_modes
def test_v0_manager_killed_while_it_saves_leaves_whole_steps_and_starts_again(world, mount):
    path = make_folder(mount, "run")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    with watch(world, path) as w:
        for delay in (0.05, 0.13):
            client = subprocess.Popen([sys.executable, "-c", KILLED, path, __file__], stdout=subprocess.PIPE, env=environment)
            world.callback(client.wait)
            world.callback(client.kill)
            for _ in range(3):
                assert client.stdout.readline()
            time.sleep(delay)
            client.send_signal(signal.SIGKILL)
            client.wait(20)
            time.sleep(0.3)  # what its last calls set going
        steps = sorted(int(n) for n in os.listdir(path))
        assert len(steps) >= 4
        with manager(path) as m:
            assert m.all_steps() == steps
            for n in steps:
                assert same(restore(m, n), state(n))
            following = steps[-1] + 1  # the name that the dead client may have had under way
            m.save(following, args=v0.args.StandardSave(state(following)))
            m.wait_until_finished()
            assert same(restore(m, following), state(following))
    w.check(expect=len(steps) + 1)


def test_v0_saves_over_a_step_only_by_its_own_refusal(mount):
    path = make_folder(mount, "run")
    with manager(path) as m:
        m.save(1, args=v0.args.StandardSave(state(1)))
        m.wait_until_finished()
        with pytest.raises(v0.checkpoint_manager.StepAlreadyExistsError):
            m.save(1, args=v0.args.StandardSave(state(2)), force=True)
        assert same(restore(m, 1), state(1))


@both_modes
@places
def test_v1_saves_and_loads(world, mount, place):
    path = make_folder(mount, place)
    with watch(world, path) as w:
        v1.save(path / "100", state(100))
        assert os.listdir(path) == ["100"]
        pending = v1.save_async(path / "101", state(101))
        pending.result()
        assert sorted(os.listdir(path)) == ["100", "101"]
        v1.save_checkpointables(path / "102", {"model": state(102), "data": state(3)})
    w.check(expect=3)
    mount.remount()
    for n in (100, 101):
        assert same(v1.load(path / str(n), like(state(n))), state(n))
    both = v1.load_checkpointables(path / "102", {"model": like(state(102)), "data": like(state(3))})
    assert same(both["model"], state(102)) and same(both["data"], state(3))
    assert v1.is_orbax_checkpoint(path / "100")


@both_modes
def test_v1_partial_saving_shows_nothing_until_it_is_finalized(world, mount):
    path = make_folder(mount, "run")
    whole = state(5)
    with watch(world, path) as w:
        for part in ({"params": whole["params"]}, {"opt": whole["opt"]}, {"step": whole["step"]}):
            v1.partial.save(path / "5", part)
            assert os.listdir(path) == []
            with pytest.raises(FileNotFoundError):
                os.stat(path / "5")
            with pytest.raises(Exception):
                v1.load(path / "5", like(whole))
        v1.partial.finalize(path / "5")
        assert os.listdir(path) == ["5"]
        with pytest.raises(Exception):
            v1.partial.finalize(path / "5")
    w.check(expect=1)
    for _ in range(2):
        assert same(v1.load(path / "5", like(whole)), whole)
        part = jax.tree.map(lambda _: v1.PLACEHOLDER, whole) | {"params": like(whole["params"])}
        assert same(v1.load(path / "5", part)["params"], whole["params"])
        mount.remount()


def test_v1_partial_save_over_a_committed_step_is_refused_by_orbax_and_changes_nothing(mount):
    path = make_folder(mount, "run")
    v1.save(path / "5", state(5))
    before = trees.describe(path / "5")
    with pytest.raises(Exception):
        v1.partial.save(path / "5", {"params": state(6)["params"]})
        v1.partial.finalize(path / "5")
    assert trees.describe(path / "5") == before
    assert same(v1.load(path / "5", like(state(5))), state(5))


def test_v1_save_without_overwrite_refuses_an_existing_step(mount):
    path = make_folder(mount, "run")
    v1.save(path / "5", state(5))
    with pytest.raises(Exception, match="(?i)exist"):
        v1.save(path / "5", state(6))
    assert same(v1.load(path / "5", like(state(5))), state(5))


def test_v1_checkpointer_lists_and_loads_its_steps(world, mount):
    path = make_folder(mount, "run42/checkpoints")
    with watch(world, path) as w:
        with v1.training.Checkpointer(path) as c:
            for n in range(3):
                c.save(n, state(n), force=True)
            c.save_async(3, state(3), force=True).result()
            assert [m.step for m in c.checkpoints] == [0, 1, 2, 3]
    w.check(expect=4)
    mount.remount()
    with v1.training.Checkpointer(path) as c:
        assert c.latest.step == 3
        assert all(same(c.load(n, like(state(n))), state(n)) for n in range(4))


def test_two_managers_in_two_folders_at_once(world, mount):
    paths = [make_folder(mount, p) for p in ("a/checkpoints", "b/checkpoints")]
    with watch(world, *paths) as w:
        managers = [manager(p) for p in paths]
        for n in range(3):
            for k, m in enumerate(managers):
                m.save(n, args=v0.args.StandardSave(state(10 * k + n)))
        for m in managers:
            m.wait_until_finished()
            m.close()
    w.check(expect=6)
    wait_until(lambda: all(len(os.listdir(p)) == 3 for p in paths))
    for k, p in enumerate(paths):
        with manager(p) as m:
            assert all(same(m.restore(n, args=v0.args.StandardRestore(like(state(10 * k + n)))), state(10 * k + n)) for n in range(3))
