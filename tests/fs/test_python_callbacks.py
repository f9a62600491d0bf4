"""The callbacks for trainers beside other processes. The trainers are stand-ins here: tests/frameworks has the real ones."""

import errno
import sys
import types

import pytest

from support import trees
from support.fixtures import SLOW
from support.python_package import package  # noqa: F401

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.timeout(180), pytest.mark.skipif(SLOW > 1, reason="a library under a sanitizer needs a program under it")]


@pytest.fixture(autouse=True)
def stand_ins(package, monkeypatch):
    hf, pl = types.ModuleType("transformers"), types.ModuleType("lightning.pytorch")
    for name in "TrainerCallback", "TrainerControl", "TrainerState", "TrainingArguments":
        setattr(hf, name, type(name, (), {}))
    pl.Callback = object
    top = types.ModuleType("lightning")
    top.pytorch = pl
    for name, module in {"transformers": hf, "lightning": top, "lightning.pytorch": pl}.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in "ckptfs.huggingface", "ckptfs.lightning":
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in "ckptfs.huggingface", "ckptfs.lightning":
        sys.modules.pop(name, None)


def test_files_of_other_ranks_are_copied(package, mount, tmp_path, monkeypatch):
    from ckptfs.huggingface import StepCallback

    source = tmp_path / "checkpoint-3"
    source.mkdir()
    trees.write(source / "rng_state_0.pth", b"0")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "barrier", lambda *a, **more: trees.write(source / "rng_state_1.pth", b"1"))
    state = types.SimpleNamespace(is_world_process_zero=True, global_step=3, epoch=1.0, log_history=[])
    StepCallback(mount.path).on_save(types.SimpleNamespace(output_dir=tmp_path), state, None)
    assert package.latest(mount.path).files == 2


def test_a_step_that_the_trainer_saved_gets_its_metrics(package, mount, commit, caplog):
    from ckptfs.huggingface import StepCallback

    folder = mount / "run/checkpoint-3"
    folder.mkdir(parents=True)
    trees.write(folder / "model.safetensors", b"x")
    commit(folder)
    log = [{"loss": 2.0, "learning_rate": 0.1, "step": 1}, {"loss": 1.5, "step": 3}, {"eval_loss": 0.5, "epoch": 1.0, "step": 3}]
    state = types.SimpleNamespace(is_world_process_zero=True, global_step=3, epoch=1.0, log_history=log)
    arguments = types.SimpleNamespace(output_dir=mount / "run")
    StepCallback(mount.path, "run").on_save(arguments, state, None)
    [step] = package.steps(mount.path, "run")
    assert (step.metrics, step.extras, step.files) == ({"loss": 1.5, "learning_rate": 0.1, "eval_loss": 0.5}, {"epoch": 1.0}, 1)
    (mount / "run/checkpoint-4").mkdir()
    trees.write(mount / "run/checkpoint-4/w", b"x")
    commit(mount / "run/checkpoint-4")
    state.global_step, state.log_history = 4, [{"x" * 70000: 1.0}]
    StepCallback(mount.path, "run").on_save(arguments, state, None)
    assert "run/checkpoint-4 is committed without its metrics" in caplog.text


def trainer(zero, broadcast):
    saved = []
    strategy = types.SimpleNamespace(broadcast=broadcast, barrier=lambda name: None)
    return types.SimpleNamespace(global_step=7, is_global_zero=zero, strategy=strategy, save_checkpoint=lambda *a, **more: saved.append(a), saved=saved)


def test_the_folder_of_a_run_need_not_be_there(package, mount, tmp_path):
    from ckptfs.huggingface import StepCallback
    from ckptfs.lightning import StepCheckpoint

    run = trainer(True, lambda said: said)
    run.callback_metrics, run.current_epoch = {}, 0
    run.save_checkpoint = lambda path, **more: trees.write(path, b"x")
    StepCheckpoint(mount.path, "new/run7").save(run)
    (tmp_path / "checkpoint-3").mkdir()
    trees.write(tmp_path / "checkpoint-3/w", b"x")
    state = types.SimpleNamespace(is_world_process_zero=True, global_step=3, epoch=1.0, log_history=[])
    StepCallback(mount.path, "run8").on_save(types.SimpleNamespace(output_dir=tmp_path), state, None)
    assert sorted(step.name for step in package.steps(mount.path, None)) == ["new/run7/7", "run8/checkpoint-3"]


def test_a_step_that_cannot_begin_stops_all_ranks(package, mount):
    from ckptfs.lightning import StepCheckpoint

    with package.step(mount.path, 7) as folder:
        trees.write(folder / "w", b"x")
    sent = []
    first = trainer(True, lambda said: sent.append(said) or said)
    with pytest.raises(package.Error) as refused:
        StepCheckpoint(mount.path).save(first)
    assert refused.value.errno == errno.EEXIST and len(sent) == 1
    other = trainer(False, lambda said: sent[0])
    with pytest.raises(package.Error, match="rank 0 could not begin") as refused:
        StepCheckpoint(mount.path).save(other)
    assert refused.value.errno == errno.ECANCELED and first.saved == other.saved == []
