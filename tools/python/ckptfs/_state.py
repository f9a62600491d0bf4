"""A state dict as one step: its tensors leave their memory first, and the files are written in the background."""

from __future__ import annotations

import base64
import errno
import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Union

from . import _arrays, _jax, _load, cuda
from ._library import Error

if TYPE_CHECKING:
    from . import Step

log = logging.getLogger("ckptfs")

StepPath = Union[str, "os.PathLike[str]"]
_NUMBERS = (bool, int, float, complex)
_VALUES = (type(None), str, bytes)
_EXTRA = "ckptfs.state"  # the name in a step's extras of the state's values that are in no file
_EXTRA_BYTES_MAX = 60 << 10  # of a step's 64 KiB of metadata
_OBJECT = "it is an object of the program, not an array"  # CKPT_WHY_OBJECT of the library
_PINNED = {"cuda": 1 << 30, "host": 256 << 20}

_pools: Dict[str, cuda.Pool] = {}
_pools_lock = threading.Lock()


def _after_fork() -> None:
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()


os.register_at_fork(after_in_child=_after_fork)


# --- Trees ------------------------------------------------------------------------------------------------------------


def _is_node(value: Any) -> bool:
    return isinstance(value, (Mapping, list, tuple))


def _walk(tree: Any, call: Callable[[str, Any], Any], name: str = "") -> Any:
    """The tree with call(name, leaf) in the place of each leaf."""

    def inner(key: Any) -> str:
        return f"{name}.{key}" if name else str(key)

    if isinstance(tree, Mapping):
        return {k: _walk(v, call, inner(k)) for k, v in tree.items()}
    if _is_node(tree):
        values = [_walk(v, call, inner(i)) for i, v in enumerate(tree)]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    return call(name, tree)


def _leaves(tree: Any) -> Dict[str, Any]:
    """All of them by name."""
    found: Dict[str, Any] = {}

    def collect(name: str, leaf: Any) -> None:
        if name in found:
            raise ValueError(f"{name}: two values of the state have this name")
        found[name] = leaf

    _walk(tree, collect)
    return found


# --- Values that are no tensors ---------------------------------------------------------------------------------------


def _is_value(leaf: Any) -> bool:
    """No array has it: None, text, bytes, or an int of more than 64 bits."""
    return isinstance(leaf, _VALUES) or (isinstance(leaf, int) and not -(1 << 63) <= leaf < 1 << 64)


def _to_json(value: Any) -> Any:
    """null, text, or {"bytes": base64}, {"str": base64}, {"int": hex} for values that JSON text cannot have."""
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, int):
        return {"int": hex(value)}
    if isinstance(value, str) and ("\0" in value or any("\ud800" <= c <= "\udfff" for c in value)):
        return {"str": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}
    return value


def _of_json(kept: Any) -> Any:
    if not isinstance(kept, dict):
        return kept
    [(kind, text)] = kept.items()
    if kind == "int":
        return int(text, 16)
    value = base64.b64decode(text)
    return value if kind == "bytes" else value.decode("utf-8", "surrogatepass")


def _split_values(leaves: Dict[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """The tensors and numbers, which go into files, and the values as the step's extras have them."""
    values = {n: _to_json(v) for n, v in leaves.items() if _is_value(v)}
    if len(json.dumps(values)) > _EXTRA_BYTES_MAX:
        name = max(values, key=lambda n: len(json.dumps(values[n])))
        kind, most = type(leaves[name]).__name__, _EXTRA_BYTES_MAX >> 10
        raise TypeError(f"{name}: the values that are no tensors take more than {most} KiB: {kind}; save this one as a tensor of bytes")
    return {n: v for n, v in leaves.items() if n not in values}, values


def _with_values(extras: Optional[Mapping[str, Any]], values: Mapping[str, Any]) -> Optional[Mapping[str, Any]]:
    if not values:
        return extras
    if _EXTRA in (extras or {}):
        raise ValueError(f"{_EXTRA}: extras= cannot have it, because values of the state are kept there")
    return {**(extras or {}), _EXTRA: values}


# --- Pools ------------------------------------------------------------------------------------------------------------


def _is_on_gpu(value: Any) -> bool:
    try:
        if _jax.is_array(value):
            return _jax.is_on_cuda(value)
        is_cuda = bool(getattr(value, "is_cuda", False))
    except RuntimeError:  # of a tensor that says nothing about itself: it is refused by its name later
        return False
    return is_cuda or (not hasattr(value, "data_ptr") and hasattr(value, "__cuda_array_interface__"))


def _pool_for(leaves: Mapping[str, Any], pool: Optional[cuda.Pool]) -> cuda.Pool:
    """That of the caller, or one of this process, which is made once for each kind of memory and kept."""
    if pool is not None:
        return pool
    device = "cuda" if any(_is_on_gpu(v) for v in leaves.values()) else "host"
    with _pools_lock:
        if device not in _pools:
            _pools[device] = cuda.Pool(_PINNED[device], device)
        return _pools[device]


# --- Saving -----------------------------------------------------------------------------------------------------------


class Saving:
    """A save that goes on in a thread of its own, to its end. The program's end waits for it."""

    def __init__(
        self, save: cuda.Save, metrics: Optional[Mapping[str, float]], extras: Optional[Mapping[str, Any]], values: Mapping[str, Any]
    ) -> None:
        self._save = save
        self._metrics, self._extras, self._values = metrics, extras, values
        self._captured, self._failed = threading.Event(), None  # type: threading.Event, Optional[BaseException]
        self._thread = threading.Thread(target=self._run, name=f"ckptfs {save.step}")
        self._thread.start()
        # It has started, so that close() of the pool can join it. A thread that ended may be there too.
        save._pool._threads.add(self._thread)

    def _run(self) -> None:
        try:
            self._save.captured()
            self._captured.set()
            self._save.commit(self._metrics, _with_values(self._extras, self._values))
        except BaseException as e:
            self._failed = e
            log.error("%s was not saved: %s", self._save.step, e)
        finally:
            self._save.close()
            self._captured.set()

    def captured(self) -> None:
        """Waits until tensors may change again: what is saved is what they are now."""
        self._captured.wait()
        if self._failed is not None:
            raise self._failed

    def done(self) -> bool:
        """It was committed, or it failed."""
        return not self._thread.is_alive()

    def result(self, timeout: Optional[float] = None) -> None:
        """Waits until the step is listed, whole, and on disk. TimeoutError; or the exception that ended the save."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(errno.ETIMEDOUT, "it is not committed yet", self._save.step)
        if self._failed is not None:
            raise self._failed


def save_async(
    state: Mapping[str, Any],
    step: StepPath,
    metrics: Optional[Mapping[str, float]] = None,
    extras: Optional[Mapping[str, Any]] = None,
    *,
    format: Optional[str] = None,
    shard_bytes: int = 0,
    overwrite: bool = False,
    pool: Optional[cuda.Pool] = None,
) -> Saving:
    """Begins to save, and commits in the background. Tensors are not to change until captured() of the result returns.

    Do not donate JAX arrays before: their memory is kept, so that JAX copies them first, or refuses.

    metrics and extras are looked at when the commit is made. The other arguments are those of save().
    """
    store, name = _arrays._split(os.fspath(step))
    tensors, values = _split_values(_leaves(state))
    return Saving(cuda.Save(_pool_for(tensors, pool), tensors, store, name, format, shard_bytes, overwrite), metrics, extras, values)


def save(
    state: Mapping[str, Any],
    step: StepPath,
    metrics: Optional[Mapping[str, float]] = None,
    extras: Optional[Mapping[str, Any]] = None,
    *,
    format: Optional[str] = None,
    shard_bytes: int = 0,
    overwrite: bool = False,
    pool: Optional[cuda.Pool] = None,
) -> None:
    """Saves a state as a step, and returns when the step is listed, whole, and on disk.

    state: mappings, lists and tuples inside of each other; names are joined by ".". A leaf is a tensor of torch on a CPU or a GPU, an
        array of NumPy, JAX or CuPy, or a number. None, str, bytes and larger ints are kept in the step's extras, as "ckptfs.state":
        60 KiB of them at most. TypeError: a leaf is none of these; nothing was written.
    step: its path in a mount, or below a store's directory: "/ckpt/1000", "/ckpt/run7/1000".
    format: "safetensors", "raw", "dcp", "torch" and the others that `ckptfs export` writes. None: safetensors; "raw", if a JAX array is
        split over devices: its parts are saved as the devices have them, each once. Other formats get it gathered by JAX. "raw" as well,
        if a number is complex or an array is complex128, which safetensors lacks.
    shard_bytes: of a file, at most; 0: one file.
    overwrite: a committed step of this name is there until the commit, and then in the trash.
    pool: `ckptfs.cuda.Pool`. Without one the process keeps its own: 1 GiB of pinned memory for GPUs, 256 MiB for a CPU.
    """
    store, name = _arrays._split(os.fspath(step))
    tensors, values = _split_values(_leaves(state))
    extras = _with_values(extras, values)
    with cuda.Save(_pool_for(tensors, pool), tensors, store, name, format, shard_bytes, overwrite) as s:
        s.commit(metrics, extras)


# --- Loading ----------------------------------------------------------------------------------------------------------


def _place(store: Optional[str], name: str, step: Any) -> Tuple[str, str, Dict[str, Any]]:
    """The store, the name of one step ("latest" is looked up once), and its values that are no tensors."""
    from . import find

    where, name = (store, name) if store is not None else _arrays._split(os.fspath(step))
    found = find(where, name)
    if found is None:
        raise Error(errno.ENOENT, "there is no such step", f"{where}/{name}")
    return where, found.name, {n: _of_json(v) for n, v in found.extras.get(_EXTRA, {}).items()}


def _empty(a: _arrays.Array, framework: str, device: Any) -> Any:
    if a.why or not a.dtype:
        raise Error(errno.ENOTSUP, a.why or "its elements cannot be read", a.full_name)
    if framework == "torch":
        import torch

        return torch.empty(a.shape, dtype=_load.torch_type(a.dtype), device=device)
    import numpy as np

    return np.empty(a.shape, _load.numpy_type(a.dtype))


def _fit(name: str, leaf: Any, a: _arrays.Array) -> None:
    if a.why:
        raise Error(errno.ENOTSUP, a.why, name)
    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        raise Error(errno.EINVAL, f"it is {a.dtype} {list(a.shape)} in the step, and {type(leaf).__name__} in the state", name)
    dtype = str(leaf.dtype).replace("torch.", "")
    if tuple(leaf.shape) != a.shape or dtype != a.dtype:
        raise Error(errno.EINVAL, f"it is {a.dtype} {list(a.shape)} in the step, and {dtype} {list(leaf.shape)} in the state", name)


def _is_number(leaf: Any) -> bool:
    """NumPy's own scalars, too; a program without NumPy has none."""
    numpy = sys.modules.get("numpy")
    return isinstance(leaf, _NUMBERS) or (numpy is not None and isinstance(leaf, numpy.generic))


def _number_of(name: str, a: _arrays.Array) -> Any:
    if a.why:
        raise Error(errno.ENOTSUP, a.why, name)
    found = a.numpy()
    if found.size != 1:
        raise Error(errno.EINVAL, f"it is {a.dtype} {list(a.shape)} in the step, and a number in the state", name)
    return found.item()


def _number(name: str, leaf: Any, value: Any) -> Any:
    """The step's number in the type of the state's, which has to have room for all of it."""
    kind = type(leaf)
    try:
        new = kind(value)
    except (TypeError, ValueError, OverflowError):  # of a complex number, NaN, infinity
        new = None
    plain = new.item() if hasattr(new, "item") else new  # NumPy compares a scalar and a number in the scalar's type
    is_same = plain == value or (plain != plain and value != value)
    if new is None or not is_same or isinstance(plain, bool) and not isinstance(value, bool):
        raise Error(errno.EINVAL, f"it is {value!r} in the step, and {kind.__name__} in the state", name)
    return new


def _value(name: str, leaf: Any, value: Any) -> Any:
    if _is_number(leaf) and isinstance(value, int):
        return _number(name, leaf, value)
    if not isinstance(leaf, _VALUES):
        raise Error(errno.EINVAL, f"it is {type(value).__name__} in the step, and {type(leaf).__name__} in the state", name)
    return value


def _can_change(leaf: Any) -> bool:
    if hasattr(leaf, "data_ptr") and _load.overlaps(leaf):
        return False
    return bool(getattr(getattr(leaf, "flags", None), "writeable", True))


def _fill(leaf: Any, made: Any) -> None:
    if hasattr(leaf, "data_ptr"):
        cuda.local(leaf).detach().copy_(made)
    else:
        leaf[...] = made


def load(
    step: Union[Step, StepPath],
    into: Optional[Any] = None,
    *,
    framework: str = "numpy",
    device: Any = None,
    pool: Optional[cuda.Pool] = None,
) -> Any:
    """Loads a step: into the tensors of a state, or as a dictionary of new ones.

    step: one of `ckptfs.latest()` and the like, or its path; "/ckpt/latest" is the newest.
    into: a state as save() takes it. Tensors of torch, NumPy and CuPy are filled where they are. The result is the state with new JAX
        arrays, numbers and values that are no tensors in their places. A JAX array gets the sharding of the one in the state, which may be
        a jax.ShapeDtypeStruct; the bytes of each part are read once. Shapes and dtypes are those of the step. A number has to be equal in
        the type of the state's: 0.75 is not loaded into an int; `ckptfs.arrays(step).load()` converts them.
    framework: without `into`, "numpy" or "torch": the result has the names of the step's arrays, and of values that are none. Objects of
        a DCP step are left out: torch.distributed.checkpoint loads them. device: torch's.
    """
    if framework not in ("numpy", "torch"):
        raise ValueError(f"Invalid framework: {framework!r}; it is numpy or torch")
    store, name, values = _place(getattr(step, "store", None), getattr(step, "name", ""), step)
    found = _arrays.Arrays(store, name)
    if into is None:
        made = {n: _empty(a, framework, device) for n, a in found.items() if a.why != _OBJECT}
        if made:
            cuda.load(_pool_for(made, pool), made, store, name)
        return {**made, **values}
    leaves = _leaves(into)
    place: Dict[str, Any] = {}  # memory that is filled by the library
    later: List[str] = []  # names whose memory is filled from that
    new: Dict[str, Any] = {}  # what is not filled
    rest: Dict[str, Any] = {}  # arrays that cannot change, by a template
    for n, leaf in leaves.items():
        if n in values:
            new[n] = _value(n, leaf, values[n])
            continue
        if n not in found:
            raise Error(errno.ENOENT, "the step has no array of this name", n)
        if _is_number(leaf):
            new[n] = _number(n, leaf, _number_of(n, found[n]))
            continue
        _fit(n, leaf, found[n])
        if _load._kind(leaf) == "jax":
            rest[n] = leaf
            continue
        try:
            cuda._Tensor(leaf, into=True)
            place[n] = leaf
        except TypeError as e:
            raise TypeError(f"{n}: {e}") from None
        except ValueError:
            if not _can_change(leaf):
                raise ValueError(f"{n}: its memory cannot be written to") from None
            else:
                place[n] = _empty(found[n], "torch" if hasattr(leaf, "data_ptr") else "numpy", getattr(leaf, "device", None))
                later.append(n)
    if place:
        cuda.load(_pool_for(place, pool), place, store, name)
    for n in later:
        _fill(leaves[n], place[n])
    if rest:
        new.update(found.load(rest).arrays)
    return _walk(into, lambda n, leaf: new.get(n, leaf))
