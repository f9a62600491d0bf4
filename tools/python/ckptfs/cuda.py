"""Tensors in the memory of GPUs, saved into a step and loaded from one; training waits for the copy, not for the disk.

    from ckptfs import cuda

    pool = cuda.Pool(4 << 30)                                     # pinned memory, once
    save = cuda.save_async(pool, model.state_dict(), "/ckpt", 1000)
    save.captured()                                               # tensors may change again
    save.commit(metrics={"loss": 1.5})                            # the step is listed, whole, and on disk

    cuda.load(pool, model.state_dict(), "/ckpt", "latest")        # into the tensors that are there

Tensors are those of torch and JAX, what has `__cuda_array_interface__` (CuPy), and what NumPy takes. They are contiguous, or copied
first. Dictionaries in dictionaries are joined by ".". libckptfs_cuda does it: `ckptfs_cuda.h` has the rules.

Format None: safetensors; "raw", if a JAX array is split over devices, or an element is a complex128, which safetensors lacks. Raw files
have parts as the devices have them, each once, and arrays.json says where each belongs. Other formats get the whole array, which JAX gathers in the memory of the host.

A pool may be used by several threads at once, a save by one. After os.fork() the child may use neither.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import threading
import weakref
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, TypeVar, Union

from . import _jax, _library
from ._library import Error
from ._staged import Staged, _metadata

__all__ = ["Pool", "Save", "describe", "load", "save", "save_async"]

StorePath = Union[str, "os.PathLike[str]"]
_WHY_MAX = 512
_Made = TypeVar("_Made")


class _Array(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("ndim", c_uint), ("shape", POINTER(c_uint64))]


class _Plan(ctypes.Structure):
    _fields_ = [("format", c_char_p), ("arrays", POINTER(_Array)), ("count", c_size_t), ("shard_bytes", c_uint64)]


_CALLS = {
    "ckpt_cuda_pool_new": (c_int, [c_uint64, c_char_p, c_uint, c_char_p, POINTER(c_void_p)]),
    "ckpt_cuda_pool_free": (None, [c_void_p]),
    "ckpt_cuda_describe": (c_int, [c_char_p]),
    "ckpt_cuda_save_folder": (c_int, [c_void_p, c_char_p, POINTER(_Plan), c_char_p, POINTER(c_void_p)]),
    "ckpt_cuda_save_array": (c_int, [c_void_p, c_char_p, c_void_p, c_uint64, c_void_p]),
    "ckpt_cuda_captured": (c_int, [c_void_p]),
    "ckpt_cuda_commit": (c_int, [c_void_p, c_char_p]),
    "ckpt_cuda_save_why": (c_char_p, [c_void_p]),
    "ckpt_cuda_save_free": (None, [c_void_p]),
    "ckpt_cuda_load_step": (c_int, [c_void_p, c_void_p, c_char_p, c_char_p, POINTER(c_void_p)]),
    "ckpt_cuda_load_array": (c_int, [c_void_p, c_char_p, c_void_p, c_uint64, c_void_p]),
    "ckpt_cuda_loaded": (c_int, [c_void_p]),
    "ckpt_cuda_load_why": (c_char_p, [c_void_p]),
    "ckpt_cuda_load_free": (None, [c_void_p]),
}
_loaded: Optional[ctypes.CDLL] = None


def _lib() -> ctypes.CDLL:
    """The library, which is beside libckptfs."""
    global _loaded
    if _loaded is None:
        name = "libckptfs_cuda.so.1"
        beside = Path(str(_library.library()._name)).with_name(name)
        try:
            library = ctypes.CDLL(str(beside) if beside.is_absolute() and beside.exists() else name)
        except OSError as e:
            raise ImportError(f"{name} cannot be loaded ({e}); install ckptfs with it, or set CKPTFS_LIBRARY to the libckptfs.so.1 that it is beside") from e
        for call, (result, arguments) in _CALLS.items():
            function = getattr(library, call)
            function.restype, function.argtypes = result, arguments
        _loaded = library
    return _loaded


def _check(result: int, what: str, why: Optional[bytes] = None) -> None:
    if result and why:
        raise Error(-result, os.fsdecode(why), what)
    _library.check(
        result,
        what,
        {errno.EBUSY: "a graph is being captured from the stream, or another process changes the store", errno.ECHILD: "this process is a fork of the one that made the pool", errno.ENOENT: "there is none of this name"},
    )


def describe() -> str:
    """GPUs and their driver, in one line, or why there is none."""
    text = ctypes.create_string_buffer(_WHY_MAX)
    _lib().ckpt_cuda_describe(text)
    return os.fsdecode(text.value)


def local(value: Any) -> Any:
    """The tensor that a DTensor has in this process, where that is all of it; another tensor as it is."""
    if hasattr(value, "device_mesh") and hasattr(value, "placements"):
        sizes = value.device_mesh.shape
        if value.device_mesh.get_coordinate() is None or any(n > 1 and not p.is_replicate() for n, p in zip(sizes, value.placements)):
            raise TypeError("other processes have parts of it: full_tensor() gathers it, and ckptfs.dcp.Writer saves the parts")
        value = value.to_local()
    wait = getattr(value, "trigger_wait", None)  # of the result of a collective that goes on
    return value if wait is None else wait()


class _Tensor:
    """A tensor as the library takes it. keep has its memory; shares: that is the memory of the value, which may be written to."""

    keep: Any
    pointer: int
    bytes: int
    dtype: str
    shape: Tuple[int, ...]
    shares: bool

    def __init__(self, value: Any, into: bool = False) -> None:
        self.stream = 0
        if hasattr(value, "data_ptr"):
            self._torch(local(value).detach())
        elif _jax.is_array(value):
            self._of_jax(value)
        elif hasattr(value, "__cuda_array_interface__"):
            self._cuda(value)
        else:
            self._numpy(value)
        if into and not self.shares:
            raise ValueError("it is not contiguous, or is no array whose memory can be written to")

    def _torch(self, value: Any) -> None:
        if str(value.layout) != "torch.strided" or value.is_nested or value.device.type not in ("cpu", "cuda"):
            kind = "nested" if value.is_nested else value.layout
            raise TypeError(f"it is no dense tensor of a CPU or of CUDA: {kind}, {value.device}")
        if value.is_quantized:
            raise TypeError("it is quantised, and no file has its scales: save dequantize() of it, or int_repr() and the scales")
        # A conjugate and a negative view share the bytes of the tensor that they are of.
        self.keep = value.resolve_conj().resolve_neg().contiguous()
        if self.keep.numel() and not self.keep.data_ptr():
            raise TypeError(f"a {type(value).__name__} has no bytes of its own: save the tensors that it is made of")
        self.shares = self.keep.data_ptr() == value.data_ptr()
        self.pointer, self.bytes = self.keep.data_ptr(), self.keep.numel() * self.keep.element_size()
        self.dtype, self.shape = str(value.dtype).rpartition(".")[2], tuple(value.shape)
        if value.is_cuda:
            import torch

            self.stream = torch.cuda.current_stream(value.device).cuda_stream

    def _of_jax(self, value: Any) -> None:
        every = _jax.parts(value)
        found = _jax.memory(every[0][2]) if len(every) == 1 else None
        if found is None:
            self._numpy(value)
            return
        (self.pointer, self.keep), self.shares = found, False
        self.bytes, self.dtype, self.shape = value.nbytes, value.dtype.name, tuple(value.shape)

    def _cuda(self, value: Any) -> None:
        import numpy as np

        about = value.__cuda_array_interface__
        self.keep, self.shares = value, not about["data"][1]
        # The interface has no name for bfloat16 and the 8-bit floats, which are "<V2" and "<f1" there.
        dtype = np.dtype(getattr(value, "dtype", about["typestr"]))
        if not dtype.isnative:
            raise TypeError("its bytes are in another order than this machine's")
        self.pointer, self.dtype, self.shape = about["data"][0], dtype.name, tuple(about["shape"])
        self.bytes = dtype.itemsize
        strides: List[int] = []
        for n in reversed(self.shape):
            strides.insert(0, self.bytes)
            self.bytes *= n
        if about.get("strides") is not None and tuple(about["strides"]) != tuple(strides) and self.bytes:
            raise ValueError("it is not contiguous")
        self.stream = about.get("stream") or 0
        if self.stream == 1:  # the legacy default stream
            self.stream = 0

    def _numpy(self, value: Any) -> None:
        import numpy as np

        array = np.asarray(value)
        if array.dtype.hasobject or array.dtype.kind in "USVmM" and array.dtype.name.startswith(("str", "bytes", "void", "date", "time")):
            raise TypeError(f"it is no tensor: {type(value).__name__}")
        self.keep = np.require(array, array.dtype.newbyteorder("="), ["C"])
        self.shares = self.keep.ctypes.data == value.ctypes.data if array is value and array.flags.writeable else False
        self.pointer, self.bytes = self.keep.ctypes.data, self.keep.nbytes
        self.dtype, self.shape = self.keep.dtype.name, array.shape


class _Split:
    """A JAX array whose parts are in the memory of several devices."""

    def __init__(self, value: Any) -> None:
        self.shape: Tuple[int, ...] = tuple(value.shape)
        self.parts: List[Tuple[Tuple[int, ...], _Tensor]] = []
        for start, extent, part in _jax.parts(value):
            made = _Tensor(part)
            made.shape = extent  # which has more axes than the part, where jax.pmap took one away
            self.parts.append((start, made))


def _flat(state: Mapping[str, Any], front: str = "") -> Iterator[Tuple[str, Any]]:
    for key, value in state.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{front}{key}.")
        else:
            yield f"{front}{key}", value


def _each(state: Mapping[str, Any], make: Callable[[Any], _Made]) -> Dict[str, _Made]:
    found: Dict[str, _Made] = {}
    for name, value in _flat(state):
        if name in found:
            raise ValueError(f"{name}: two tensors have this name")
        try:
            _jax.check(value)
            found[name] = make(value)
        except (TypeError, ValueError, RuntimeError) as e:  # their subclasses may take other arguments
            raise (TypeError if isinstance(e, TypeError) else ValueError)(f"{name}: {e}") from None
    return found


class Pool:
    """Pinned memory for saves and loads. device: None a GPU; "host", "host:12G": none, its place is taken by threads."""

    def __init__(self, pinned_bytes: int, device: Optional[str] = None, buffered: bool = False) -> None:
        why = ctypes.create_string_buffer(_WHY_MAX)
        self._lib = _lib()
        self._at = c_void_p()
        _check(self._lib.ckpt_cuda_pool_new(pinned_bytes, _library.encode(device), 1 if buffered else 0, why, byref(self._at)), device or "cuda", why.value)
        self._saves: weakref.WeakSet[Save] = weakref.WeakSet()
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # those of ckptfs.save_async()

    def close(self) -> None:
        """Waits for `ckptfs.save_async()`, and gives up other saves that are under way; loads have returned.

        In a forked child it does nothing.
        """
        for thread in list(self._threads):
            thread.join()
        for save in list(self._saves):
            save.close()
        self._lib.ckpt_cuda_pool_free(self._at)
        self._at = c_void_p()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *why: Any) -> None:
        self.close()


class Save:
    """A save under way. It keeps the tensors until they are captured. As a context manager it gives up what was not committed."""

    def __init__(self, pool: Pool, state: Mapping[str, Any], store: StorePath, step: Union[int, str], format: Optional[str], shard_bytes: int, force: bool) -> None:
        self._pool, self._lib, self._at = pool, pool._lib, c_void_p()
        self.step = str(step)
        if not pool._at:
            raise ValueError("the pool is closed")
        self._named: List[Tuple[str, Tuple[int, ...], Tuple[int, ...]]] = []
        self._said = ""
        has_parts = format in (None, "raw") and any(_jax.is_split(value) for _, value in _flat(state))
        self._tensors: Dict[str, _Tensor] = self._numbered(state) if has_parts else _each(state, _Tensor)
        if format is None:
            # safetensors has no complex128, which Python's complex numbers are.
            format = "raw" if has_parts or any(t.dtype == "complex128" for t in self._tensors.values()) else "safetensors"
        self._begin(os.fspath(store), format, shard_bytes, force)
        try:
            for name, t in self._tensors.items():
                result = self._lib.ckpt_cuda_save_array(self._at, name.encode(), t.pointer, t.bytes, t.stream or None)
                self._check(result, self._named[int(name)][0] if self._named else name)
        except BaseException:
            self.close()
            raise

    def _numbered(self, state: Mapping[str, Any]) -> Dict[str, _Tensor]:
        """All tensors and parts, called by their numbers; _named has what these are: the array, its shape, and the part's start."""
        found: List[_Tensor] = []
        for name, made in _each(state, lambda value: _Split(value) if _jax.is_split(value) else _Tensor(value)).items():
            for start, part in made.parts if isinstance(made, _Split) else [((0,) * len(made.shape), made)]:
                self._named.append((name, made.shape, start))
                found.append(part)
        return {str(i): part for i, part in enumerate(found)}

    def _whose(self, why: bytes) -> bytes:
        """The library calls parts by their numbers."""
        number, colon, rest = why.partition(b": ")
        return os.fsencode(self._named[int(number)][0]) + colon + rest if self._named and number.isdigit() else why

    def _begin(self, store: str, format: str, shard_bytes: int, force: bool) -> None:
        arrays = (_Array * max(len(self._tensors), 1))()
        shapes: List[Any] = []
        for at, (name, t) in zip(arrays, self._tensors.items()):
            shapes.append((c_uint64 * max(len(t.shape), 1))(*t.shape))
            at.name, at.dtype, at.ndim, at.shape = name.encode(), t.dtype.encode(), len(t.shape), shapes[-1]
        plan = _Plan(format.encode(), arrays, len(self._tensors), shard_bytes)
        why = ctypes.create_string_buffer(_WHY_MAX)
        self._staged = Staged(store, self.step, force)
        rc = self._lib.ckpt_cuda_save_folder(self._pool._at, os.fsencode(self._staged.path), byref(plan), why, byref(self._at))
        if rc:
            self._staged.abort()
            _check(rc, self.step, self._whose(why.value))
        self._pool._saves.add(self)

    def _open(self) -> c_void_p:
        if not self._at:
            raise ValueError("the save was committed or closed")
        return self._at

    def _check(self, result: int, what: str) -> None:
        if result:
            _check(result, what, self._whose(self._lib.ckpt_cuda_save_why(self._at)))

    def captured(self) -> None:
        """Waits until no copy reads the tensors any more."""
        try:
            self._check(self._lib.ckpt_cuda_captured(self._open()), self.step)
        finally:
            self._tensors = {}

    def commit(self, metrics: Optional[Mapping[str, float]] = None, extras: Optional[Mapping[str, Any]] = None) -> None:
        """Waits until the step is listed, whole, and on disk."""
        said = _metadata(metrics, extras)
        self.captured()
        self._check(self._lib.ckpt_cuda_commit(self._at, None), self.step)
        self._name_parts(self._staged.path / "arrays.json")
        self._staged._commit(said)
        self.close()

    def _name_parts(self, path: Path) -> None:
        """arrays.json with the arrays that the parts are of. A commit that failed may come here again."""
        arrays: Dict[str, Any] = {}
        for of, (name, shape, start) in zip(json.loads(path.read_text())["arrays"] if self._named else [], self._named):
            [piece] = of["pieces"]
            piece.update(start=start, extent=of["shape"])
            arrays.setdefault(name, {"name": name, "dtype": of["dtype"], "shape": shape, "pieces": []})["pieces"].append(piece)
        if self._named:
            self._said = json.dumps({"arrays": list(arrays.values())})
            self._named = []
        if self._said:
            path.write_text(self._said)  # which may fail in the middle, and is written again then

    def close(self) -> None:
        """Gives up a save that was not committed."""
        at, self._at = self._at, c_void_p()
        if at:
            self._lib.ckpt_cuda_save_free(at)
            self._staged.abort()
        self._tensors = {}

    def __enter__(self) -> Save:
        return self

    def __exit__(self, *why: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_at", None):
            self.close()


def save_async(pool: Pool, state: Mapping[str, Any], store: StorePath, step: Union[int, str], format: Optional[str] = None, shard_bytes: int = 0, force: bool = False) -> Save:
    """Begins to save; captured() and commit() of the result go on with it."""
    return Save(pool, state, store, step, format, shard_bytes, force)


def save(pool: Pool, state: Mapping[str, Any], store: StorePath, step: Union[int, str], metrics: Optional[Mapping[str, float]] = None, extras: Optional[Mapping[str, Any]] = None, **how: Any) -> None:
    """Saves, and returns when the step is on disk. how: as of save_async()."""
    with save_async(pool, state, store, step, **how) as s:
        s.commit(metrics, extras)


def load(pool: Pool, into: Mapping[str, Any], store: StorePath, step: Union[int, str] = "latest") -> None:
    """Into the tensors that are there: each name of `into` is an array of the step, of as many bytes."""
    if not pool._at:
        raise ValueError("the pool is closed")
    tensors = _each(into, lambda value: _Tensor(value, into=True))
    lib, at = pool._lib, c_void_p()
    why = ctypes.create_string_buffer(_WHY_MAX)
    with _library.Handle(os.fspath(store)) as handle:
        _check(lib.ckpt_cuda_load_step(pool._at, handle.at, os.fsencode(str(step)), why, byref(at)), str(step), why.value)
        try:
            for name, t in tensors.items():
                _check(lib.ckpt_cuda_load_array(at, name.encode(), t.pointer, t.bytes, t.stream or None), name, lib.ckpt_cuda_load_why(at))
            _check(lib.ckpt_cuda_loaded(at), str(step), lib.ckpt_cuda_load_why(at))
        finally:
            lib.ckpt_cuda_load_free(at)
