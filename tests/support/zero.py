"""Checkpoints as DeepSpeed's ZeRO lays them out (runtime/zero/stage_1_and_2.py, stage3.py, bf16_optimizer.py, engine.py), by torch.save(). The
partitions are computed here. Classes stand under DeepSpeed's names, as they do in its pickles."""

import enum
import math
import sys
import types

import torch

STATES = ("exp_avg", "exp_avg_sq")


class ZeroStageEnum(int, enum.Enum):
    disabled, optimizer_states, gradients, weights = range(4)


class LossScaler:
    def __init__(self):
        self.cur_scale = 1.0


def _stand(cls, module):
    cls.__module__, cls.__qualname__ = module, cls.__name__
    parts = module.split(".")
    for i in range(1, len(parts) + 1):
        name = ".".join(parts[:i])
        sys.modules.setdefault(name, types.ModuleType(name))
    setattr(sys.modules[module], cls.__name__, cls)


_stand(ZeroStageEnum, "deepspeed.runtime.zero.config")
_stand(LossScaler, "deepspeed.runtime.fp16.loss_scaler")


def parameters(shapes, seed=0):
    """{NAME: tensor} of random fp32."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.rand(shape, generator=generator) + 1 for name, shape in shapes.items()}


def states_of(groups):
    """[{NAME: {KEY: tensor}}], each other than the weights."""
    return [{name: {key: p * (i + 2) for i, key in enumerate(STATES)} for name, p in group.items()} for group in groups]


def _flat(tensors):
    return torch.cat([t.reshape(-1) for t in tensors]) if tensors else torch.zeros(0)


def _padded(flat, unit):
    return torch.cat([flat, torch.full((-len(flat) % unit,), -1.0, dtype=flat.dtype)])


def _parts_2(tensors, world, lean):
    """Stages 1 and 2: of a group, for each rank."""
    flat = _flat(tensors)
    parts = _padded(flat, 2 * world).chunk(world) if len(flat) else [flat] * world
    size = len(parts[0])
    return [p[: max(0, min(size, len(flat) - i * size))].clone() if lean else p.clone() for i, p in enumerate(parts)]


def _shares(tensor, world):
    return _padded(tensor.reshape(-1), world).reshape(world, math.ceil(tensor.numel() / world))


def _parts_3(tensors, world):
    return [_flat([_shares(t, world)[rank] for t in tensors]) for rank in range(world)]


def _recut(parts, ends):
    """A rank's flat groups, cut elsewhere."""
    flat = _flat(parts)
    return [flat[a:b].clone() for a, b in zip([0, *ends], [*ends, len(flat)])]


class Zero:
    """write() lays it out. want: what is in the files, by the names of the arrays."""

    def __init__(self, groups, stage, world, frozen=None, buffers=None, shared=None):
        self.groups, self.stage, self.world = groups, stage, world
        self.frozen, self.buffers, self.shared = frozen or {}, buffers or {}, shared or {}
        self.states = states_of(groups)
        self.want = {name: p for group in groups for name, p in group.items()}
        self.want |= self.frozen | self.buffers
        self.want |= {name: self.want[other] for name, other in self.shared.items()}
        for group in self.states:
            self.want |= {f"{name}.{key}": t for name, states in group.items() for key, t in states.items()}

    def model_states(self, rank):
        of_rank = (lambda t: _shares(t, self.world)[rank].clone()) if self.stage == 3 else (lambda t: t)
        whole = {name: p.half() for group in self.groups for name, p in group.items()}
        return {
            "module": whole | self.buffers, "buffer_names": list(self.buffers),
            "param_shapes": [{name: p.shape for name, p in group.items()} for group in self.groups],
            "frozen_param_shapes": {name: p.shape for name, p in self.frozen.items()},
            "frozen_param_fragments": {name: of_rank(p) for name, p in self.frozen.items()},
            "shared_params": self.shared, "dp_world_size": self.world, "mp_world_size": 1, "ds_version": "0.19.8",
        }  # fmt: skip

    def optimizer_states(self, rank, lean=True, elastic=False, recut=None):
        def parts(of, lean):
            groups = [[of(i, name) for name in group] for i, group in enumerate(self.groups)]
            if self.stage < 3:
                return [_parts_2(group, self.world, lean)[rank] for group in groups]
            of_rank = [_parts_3(group, self.world)[rank] for group in groups]
            return _recut(of_rank, recut) if recut is not None else of_rank

        weights = parts(lambda i, name: self.groups[i][name], lean)
        keys = {key: parts(lambda i, name: self.states[i][name][key], elastic) for key in STATES}
        state = {g: {"step": torch.tensor(7.0), "count": torch.tensor([7.0])} | {key: keys[key][g] for key in STATES} for g in range(len(weights))}
        base = [state[g] for g in state] if elastic else {"state": state, "param_groups": [{"lr": 0.1, "params": [g]} for g in state]}
        stage = {"zero_stage": ZeroStageEnum(self.stage), "loss_scaler": LossScaler(), "overflow": False}
        if self.stage == 3:
            stage |= {"partition_count": self.world, "optimizer_state_dict": base, "fp32_flat_groups": weights}
        else:
            stage |= {"partition_count": [self.world] * len(weights), "base_optimizer_state": base, "single_partition_of_fp32_groups": weights}
        return {"optimizer_state_dict": stage, "ds_config": {}, "ds_version": "0.19.8"}

    def write(self, folder, mp=0, bf16=False, change=None, zipped=True, **how):
        """change(file name, content) may change what is saved. The names of the files."""
        folder.mkdir(parents=True, exist_ok=True)
        prefix = "bf16_" if bf16 else ""
        files = {f"{prefix}zero_pp_rank_{r}_mp_rank_{mp:02}_optim_states.pt": self.optimizer_states(r, **how) for r in range(self.world)}
        if self.stage == 3:
            files |= {f"zero_pp_rank_{r}_mp_rank_{mp:02}_model_states.pt": self.model_states(r) for r in range(self.world)}
        else:
            files[f"mp_rank_{mp:02}_model_states.pt"] = self.model_states(0)
        for name, content in files.items():
            if change:
                change(name, content)
            torch.save(content, folder / name, _use_new_zipfile_serialization=zipped)
        return sorted(files)
