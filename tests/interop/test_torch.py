"""torch.save and torch.load, unmodified, on a mount: files in a step, single files that are steps, and what is mapped."""

import os

import pytest

from support.fixtures import both_modes
from support.watcher import watch

try:
    import torch
except ImportError:
    torch = None

# Not importorskip: of a file of which nothing was collected pytest says that it failed.
pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(torch is None, reason="no build of torch for the CPU is to be had here")]


def states(seed):
    """Of a small model and its optimizer after a step, as a training loop has them."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 8).bfloat16())
    optimizer = torch.optim.AdamW(model[0].parameters())
    model[0](torch.randn(4, 128)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": seed}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return len(a) == len(b) and all(map(same, a, b)) if isinstance(a, (list, tuple)) else a == b


@both_modes
def test_steps_are_read_back_exactly_and_go_on(world, mount, commit):
    with watch(world, mount.path) as w:
        for step in range(3):
            (mount / f"step_{step}").mkdir()
            for rank in range(2):
                torch.save(states(10 * step + rank), mount / f"step_{step}/rank-{rank}.pt")
            commit(mount / f"step_{step}")
    w.check(expect=3)
    mount.remount()
    assert mount.listing() == ["step_0", "step_1", "step_2"]
    for step in range(3):
        for rank in range(2):
            path = mount / f"step_{step}/rank-{rank}.pt"
            assert all(same(torch.load(path, mmap=mapped), states(10 * step + rank)) for mapped in (False, True))


@both_modes
def test_one_file_is_whole_when_it_is_closed(mount):
    for step in (1, 2):
        torch.save(states(step), mount / f"checkpoint_{step}.pt")
        assert same(torch.load(mount / f"checkpoint_{step}.pt"), states(step))
    torch.save(states(3), mount / "checkpoint_1.pt")
    mount.remount()
    assert mount.listing() == ["checkpoint_1.pt", "checkpoint_2.pt"]
    assert same(torch.load(mount / "checkpoint_1.pt"), states(3)) and same(torch.load(mount / "checkpoint_2.pt"), states(2))


def test_half_a_save_is_no_file(mount, agent):
    a = agent()
    a.run("f = open(path, 'wb'); f.write(data); f.flush()", path=str(mount / "checkpoint_7.pt"), data=os.urandom(1 << 16))
    a.kill()
    a.wait_gone(10)
    assert mount.listing() == []
    torch.save(states(7), mount / "checkpoint_7.pt")
    assert same(torch.load(mount / "checkpoint_7.pt"), states(7)) and mount.listing() == ["checkpoint_7.pt"]
