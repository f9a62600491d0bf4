"""The arrays of a step, of whatever format its files have: each is read when it is used, and only the part that is."""

from __future__ import annotations

import errno
import json
import numbers
import os
import shutil
import subprocess
import weakref
from collections.abc import Mapping
from ctypes import byref, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from . import _library, _load
from ._library import Error

if TYPE_CHECKING:
    import numpy as np

    from . import Step

_REFUSED = {
    errno.ENOENT: "there is no such step",
    errno.ENODATA: "a part of it is in no file of the step",
    errno.EBADMSG: "its bytes are damaged; `ckptfs verify` says what else is",
    errno.EEXIST: "several trees of the step have it; name one as TREE:NAME",
    errno.ERANGE: "its shape is another, or the box is not in it",
}


class _Set:
    """The arrays of a step in the library, until nobody has one of them any more."""

    def __init__(self, store: str, step: str) -> None:
        self.lib = _library.library()
        self.what = f"{store}/{step}"
        self.at = c_void_p()
        with _library.Handle(store) as handle:
            _library.check(self.lib.ckpt_array_set_open(handle.at, os.fsencode(step), byref(self.at)), self.what, _REFUSED)
        # Not at the end of the process: a thread that nobody waits for may be reading then.
        weakref.finalize(self, self.lib.ckpt_array_set_free, self.at).atexit = False  # type: ignore[misc, unused-ignore]

    def read_all(self, requests: List[_load.Request], at_once: int = 1) -> List[int]:
        """Reads them; how each was fitted. The exception is that of the first that failed."""
        results = _load.read(self.lib, self.at, requests, at_once)
        for request, result in zip(requests, results):
            _library.check(min(result, 0), request.name, _REFUSED)
        return results

    def infos(self) -> Iterator[_library.ArrayInfo]:
        return (self.lib.ckpt_array_set_at(self.at, i).contents for i in range(self.lib.ckpt_array_set_count(self.at)))


class Array:
    """One array; nothing is read until it is indexed or converted. Threads may share it."""

    def __init__(self, of: _Set, index: int, info: _library.ArrayInfo) -> None:
        self._set = of
        self._index = index
        self._width = info.width
        self.tree: str = os.fsdecode(info.tree)  # the file, or the directory, that says what it is
        self.name: str = os.fsdecode(info.name)
        self.dtype: Optional[str] = _library.decode(info.dtype)  # as NumPy or ml_dtypes name it; None: not known
        self.format: str = os.fsdecode(info.format)
        self.why: Optional[str] = _library.decode(info.why)  # it cannot be read, and why; None: it can
        self.shape: Tuple[int, ...] = tuple(info.shape[k] for k in range(info.ndim))
        self.nbytes: int = info.bytes

    def _readable(self) -> str:
        """Its dtype; the exception is that of an array without elements that could be read."""
        if self.why or not self.dtype or not self._width:
            raise Error(errno.ENOTSUP, self.why or "a byte has several of its elements", self.full_name)
        return self.dtype

    def _read_into(self, at: Any, start: Sequence[int], extent: Sequence[int]) -> None:
        numbers = c_uint64 * max(len(start), 1)
        result = self._set.lib.ckpt_array_set_read(self._set.at, self._index, numbers(*start), numbers(*extent), at)
        _library.check(result, self.full_name, _REFUSED)

    def _read(self, start: List[int], extent: List[int]) -> np.ndarray[Any, Any]:
        import numpy as np

        made = np.empty(extent, _load.numpy_type(self._readable()))
        self._read_into(made.ctypes.data_as(c_void_p), start, extent)
        return made

    def __getitem__(self, at: Any) -> Any:
        """As of a NumPy array. With integers and slices only the box is read that has these elements."""
        at = at if isinstance(at, tuple) else (at,)
        plain = all(isinstance(x, slice) or x is Ellipsis or (isinstance(x, numbers.Integral) and not isinstance(x, bool)) for x in at)
        if not plain or sum(x is Ellipsis for x in at) > 1:
            return self.numpy()[at]
        i = next((i for i, x in enumerate(at) if x is Ellipsis), None)
        if i is not None:
            at = at[:i] + (slice(None),) * (len(self.shape) - len(at) + 1) + at[i + 1 :]
        if len(at) > len(self.shape):
            raise IndexError(f"too many indices: it has {len(self.shape)} dimensions")
        start: List[int] = []
        extent: List[int] = []
        then: List[Union[int, slice]] = []
        for size, x in zip(self.shape, at + (slice(None),) * (len(self.shape) - len(at))):
            if isinstance(x, slice):
                wanted = range(*x.indices(size))
                first, last = (min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1])) if wanted else (0, -1)
                then.append(slice(None, None, wanted.step))
            else:
                first = last = int(x) + (size if x < 0 else 0)
                if not 0 <= first < size:
                    raise IndexError(f"{x} is not in an axis of {size}")
                then.append(0)
            start.append(first)
            extent.append(last - first + 1)
        return self._read(start, extent)[tuple(then)]

    def numpy(self) -> np.ndarray[Any, Any]:
        return self._read([0] * len(self.shape), list(self.shape))

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("an array of a step is read by copying it")
        whole = self.numpy()
        return whole if dtype is None else whole.astype(dtype)

    def torch(self) -> Any:
        """A torch tensor, of bfloat16 and the 8-bit floats too. It is read into its own memory; NumPy is not needed."""
        import torch

        made = torch.empty(self.shape, dtype=_load.torch_type(self._readable()))
        self._read_into(c_void_p(made.data_ptr()), [0] * len(self.shape), self.shape)
        return made

    def jax(self) -> Any:
        """A JAX array on JAX's default device."""
        import jax

        return jax.numpy.asarray(self.numpy())

    @property
    def full_name(self) -> str:
        return f"{self.tree}:{self.name}"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("it has no dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<ckptfs.Array {self.tree}:{self.name} {self.dtype} {list(self.shape)}>"


class Arrays(Mapping[str, Array]):
    """The arrays of a step by name; by "TREE:NAME" where several trees have the name."""

    def __init__(self, store: str, step: str) -> None:
        of = self._set = _Set(store, step)
        self._full: Dict[str, Array] = {}
        count: Dict[str, int] = {}
        for i, info in enumerate(of.infos()):
            a = Array(of, i, info)
            count[a.name] = count.get(a.name, 0) + 1
            self._full.setdefault(a.full_name, a)  # where a tree has a name twice, the first can be read
        self._at = {a.name if count[a.name] == 1 else full: a for full, a in self._full.items()}

    def __getitem__(self, name: str) -> Array:
        return self._at[name] if name in self._at else self._full[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)

    def __repr__(self) -> str:
        return f"<ckptfs.Arrays {self._set.what}: {len(self)} arrays>"

    def load(
        self,
        template: Any,
        strict: str = "assume_ok_unexpected",
        shapes: Union[str, Callable[[str], str]] = "strict",
        *,
        dtype: Optional[str] = None,
        callback: Optional[Callable[[Any, str], Any]] = None,
        chunk_size: int = 0,
        at_once: int = 0,
        in_place: bool = False,
    ) -> _load.Loaded:
        """The arrays that a template names, each of the kind, the shape and the dtype of its leaf.

        template: mappings, lists and tuples inside of each other; names are joined by ".". A leaf is an array of NumPy, torch or
            JAX, a jax.ShapeDtypeStruct, or None: a NumPy array as it is in the step. Any other value stays as it is. A JAX leaf with a
            sharding gets that: each process reads the parts that its devices have. A tensor on torch's device "meta" gets one on the CPU.
        strict: a mode of Megatron's StrictHandling: assume_ok_unexpected, log_unexpected, log_all, raise_unexpected, raise_all,
            return_unexpected, return_all, ignore_all. What a mode logs is a warning of the logger "ckptfs".
        shapes: "strict"; "relaxed", as eFormer's strict_shapes=False: [0] of one dimension more, a reshape at equal size, else the
            template's own value, also for a name that the step lacks; "padded", as Megatron's allow_shape_mismatch: zeros at
            the end. Or a function that says which of them for a name.
        dtype: of all floating arrays, instead of the template's.
        callback: gets each array and its name, and returns what takes its place.
        chunk_size: so many arrays are read before callbacks are called; 0: all.
        at_once: so many threads read; 0: as many as the machine has processors, up to 8.
        in_place: arrays of NumPy and of torch on the CPU are read into the template's own memory. ValueError, before
            anything is read: a tensor has none, as an expanded one.
        """
        loading = _load.Loading(self._set, self._set.what, shapes, dtype, in_place)
        return loading.load(template, strict, callback, chunk_size, at_once)


def _split(path: str) -> Tuple[str, str]:
    """The store of a path in a mount, or below a store's directory, and the step."""
    store, step = os.path.split(os.path.abspath(path))
    while True:
        try:
            with _library.Handle(store):
                return store, step
        except Error as e:
            parent, name = os.path.split(store)
            if parent == store or e.errno not in (errno.EINVAL, errno.EMEDIUMTYPE, errno.ENOENT, errno.ENOTDIR):
                raise Error(errno.ENOENT, "it is in no store of ckptfs", path) from None
            store, step = parent, f"{name}/{step}"


def _which(step: Union[Step, str, os.PathLike[str]]) -> Tuple[str, str]:
    """The store and the name of one of `ckptfs.latest()` and the like, or of a path."""
    store = getattr(step, "store", None)
    return (store, step.name) if store is not None else _split(os.fspath(step))  # type: ignore[union-attr]


def arrays(step: Union[Step, str, os.PathLike[str]]) -> Arrays:
    """The arrays of a step, mounted or not: one of `ckptfs.latest()` and the like, or its path in a mount."""
    return Arrays(*_which(step))


def _program() -> str:
    program = os.environ.get("CKPTFS_PROGRAM") or shutil.which("ckptfs")
    if program is None:
        raise Error(errno.ENOENT, "the program is in none of PATH's directories; CKPTFS_PROGRAM may say where it is", "ckptfs")
    return program


def newest_healthy(store: str, folder: Optional[str], by: Optional[str]) -> Optional[str]:
    """The answer of `ckptfs latest --healthy`."""
    command = [_program(), "latest", store, *([folder] if folder else []), "--healthy", "--json", *(["--by", by] if by else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    answer: Dict[str, Any] = json.loads(done.stdout or "{}")
    if "name" not in answer:
        raise Error(errno.EIO, answer.get("error") or done.stderr.strip() or "it said nothing", store)
    return str(answer["name"])


def checks(step: Union[Step, str, os.PathLike[str]], read_data: bool = False) -> Dict[str, Any]:
    """The answer of `ckptfs check --json` for a step: {"healthy", "arrays", "findings": [...], ...}."""
    program = _program()
    which = _which(step)
    command = [program, "check", *which, "--json", *(["--read-data"] if read_data else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    answer: Dict[str, Any] = json.loads(done.stdout or "{}")
    if "findings" not in answer:
        Arrays(*which)  # of a step that is not there this says so
        raise Error(errno.EIO, answer.get("error") or done.stderr.strip() or "it said nothing", "/".join(which))
    return answer


def findings(step: Union[Step, str, os.PathLike[str]], read_data: bool = True) -> List[Dict[str, Any]]:
    """The findings of checks(), elements read."""
    return list(checks(step, read_data)["findings"])
