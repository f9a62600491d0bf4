"""The Python package's callbacks in real trainers: the store's policy says when to save, and each save is one committed step."""

import json
import os
import subprocess
import sys

import pytest

from support.fixtures import SLOW, SOURCE

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(SLOW > 1, reason="a library under a sanitizer needs a program under it")]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
POLICY = {"save": {"fixed_interval": {"interval": 3}}}


@pytest.fixture(autouse=True)
def nothing_for_the_table(results):
    """tests/frameworks/table reads a file of each module."""


@pytest.fixture(scope="module")
def package(ckptfs):
    os.environ["CKPTFS_LIBRARY"] = str(ckptfs.path.parent / "libckptfs.so.1")
    os.environ["CKPTFS_PROGRAM"] = str(ckptfs.path)
    sys.path.insert(0, str(SOURCE / "tools/python"))
    import ckptfs as module

    return module


@pytest.fixture
def policy(ckptfs, mount, tmp_path):
    """Every third step."""
    (tmp_path / "policy.json").write_text(json.dumps(POLICY))
    ckptfs("policy", "set", mount.path, tmp_path / "policy.json")


# --- Hugging Face -----------------------------------------------------------------------------------------------------


def train(package, store, output, until, folder=None, **more):
    transformers = pytest.importorskip("transformers")
    from ckptfs.huggingface import StepCallback, resume

    seen = []

    class Watch(transformers.TrainerCallback):
        def on_save(self, args, state, control, **_):
            seen.append([s.name.rsplit("-")[-1] for s in package.steps(store, folder or "")])

        def on_train_begin(self, args, state, control, **_):
            seen.append(state.global_step)

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    data = [{"input_ids": torch.arange(8) + i, "labels": torch.arange(8) + i} for i in range(32)]
    arguments = transformers.TrainingArguments(
        output_dir=str(output), max_steps=until, save_strategy="no", per_device_train_batch_size=1, report_to=[], disable_tqdm=True, logging_steps=1,
        use_cpu=True, seed=1)  # fmt: skip
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[StepCallback(store, folder, **more), Watch()])
    trainer.train(resume_from_checkpoint=resume(store, folder or ""))
    return seen


def test_a_trainer_that_saves_into_a_mount(package, mount, policy):
    (mount / "run").mkdir()
    assert train(package, mount.path, mount / "run", 7, "run") == [0, ["3"], ["3", "6"]]
    assert train(package, mount.path, mount / "run", 10, "run") == [6, ["3", "6", "9"]]
    newest = package.latest(mount.path, "run")
    assert newest.name == "run/checkpoint-9" and newest.metrics["loss"] > 0 and newest.extras["epoch"] > 0


def test_a_trainer_that_saves_elsewhere(package, mount, policy, tmp_path):
    assert train(package, mount.path, tmp_path / "out", 4) == [0, ["3"]]
    [step] = package.steps(mount.path)
    assert step.name == "checkpoint-3" and step.metrics["loss"] > 0 and step.extras["epoch"] > 0
    assert {"trainer_state.json", "optimizer.pt", "model.safetensors"} <= set(os.listdir(step))
    assert train(package, mount.path, tmp_path / "out", 7)[0] == 3


# --- Lightning --------------------------------------------------------------------------------------------------------


def fit(package, store, until, accumulate=1, **more):
    pl = pytest.importorskip("lightning.pytorch")
    from ckptfs.lightning import StepCheckpoint, resume

    began = []

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def on_train_start(self):
            began.append(self.global_step)

        def training_step(self, batch, _):
            loss = self.net(batch).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = pl.Trainer(accelerator="cpu", devices=1, max_steps=until, callbacks=[StepCheckpoint(store, **more)], logger=False, enable_checkpointing=False,
                         accumulate_grad_batches=accumulate, enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
    model = Model()
    trainer.fit(model, torch.utils.data.DataLoader(torch.ones(100, 4), batch_size=1), ckpt_path=resume(store))
    return began[0], {k: v.detach().clone() for k, v in model.state_dict().items()}


def test_lightning_saves_by_the_policy_and_resumes(package, mount, policy, ckptfs):
    began, _ = fit(package, mount.path, 7)
    assert began == 0 and [s.number for s in package.steps(mount.path)] == [3, 6]
    assert all(s.metrics["loss"] >= 0 and s.extras == {"epoch": 0} for s in package.steps(mount.path))
    began, _ = fit(package, mount.path, 10)
    assert began == 6 and [s.number for s in package.steps(mount.path)] == [3, 6, 9] and ckptfs.json("sessions", mount.path) == []


def test_lightning_saves_without_a_mount_every_so_often_and_at_the_end(package, mount, store):
    mount.umount()
    _, weights = fit(package, store, 5, every_n_steps=2)
    assert [s.number for s in package.steps(store)] == [2, 4, 5]
    with pytest.raises(package.Error, match="not mounted"):
        fit(package, store, 6)
    found = package.arrays(package.latest(store))
    assert torch.equal(found["state_dict.net.weight"].torch(), weights["net.weight"])


def test_batches_that_are_one_step_are_saved_once(package, mount):
    fit(package, mount.path, 3, accumulate=3, every_n_steps=1)
    assert [(s.number, s.version) for s in package.steps(mount.path)] == [(1, 1), (2, 1), (3, 1)]


def test_a_save_that_fails_in_lightning_leaves_nothing(package, mount, ckptfs, monkeypatch):
    pl = pytest.importorskip("lightning.pytorch")
    monkeypatch.setattr(pl.Trainer, "save_checkpoint", lambda *a, **more: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fit(package, mount.path, 3, every_n_steps=2)
    assert package.steps(mount.path) == [] and ckptfs.json("sessions", mount.path) == []


def test_the_package_needs_none_of_them(package):
    code = "import sys, ckptfs; print([m for m in ('torch', 'transformers', 'lightning', 'jax', 'numpy') if m in sys.modules])"
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(package.__file__))}
    assert subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout == "[]\n"
