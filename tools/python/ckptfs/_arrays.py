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
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple, Union

from . import _library
from ._library import Error

if TYPE_CHECKING:
    import numpy as np

    from . import Step

_REFUSED = {
    errno.ENOENT: "there is no such step",
    errno.ENODATA: "a part of it is in no file of the step",
    errno.EBADMSG: "its bytes are damaged; `ckptfs verify` says what else is",
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
        weakref.finalize(self, self.lib.ckpt_array_set_free, self.at).atexit = False

    def infos(self) -> Iterator[_library.ArrayInfo]:
        return (self.lib.ckpt_array_set_at(self.at, i).contents for i in range(self.lib.ckpt_array_set_count(self.at)))


def _numpy_type(name: str) -> np.dtype:
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        raise Error(errno.ENOTSUP, "NumPy has no such type; install ml_dtypes", name) from None
    return np.dtype(getattr(ml_dtypes, name))


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

    def _read(self, start: List[int], extent: List[int]) -> np.ndarray:
        import numpy as np

        if self.why or not self.dtype or not self._width:
            raise Error(errno.ENOTSUP, self.why or "a byte has several of its elements", f"{self.tree}:{self.name}")
        made = np.empty(extent, _numpy_type(self.dtype))
        numbers = c_uint64 * max(len(start), 1)
        result = self._set.lib.ckpt_array_set_read(
            self._set.at, self._index, numbers(*start), numbers(*extent), made.ctypes.data_as(c_void_p)
        )
        _library.check(result, f"{self.tree}:{self.name}", _REFUSED)
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
        start, extent, then = [], [], []
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

    def numpy(self) -> np.ndarray:
        return self._read([0] * len(self.shape), list(self.shape))

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an array of a step is read by copying it")
        whole = self.numpy()
        return whole if dtype is None else whole.astype(dtype)

    def torch(self) -> Any:
        """A torch tensor, of bfloat16 and the 8-bit floats too."""
        import numpy as np
        import torch

        bits = self.numpy().view(np.dtype(f"u{self._width}")) if self._width <= 2 and self.dtype != "bool" else self.numpy()
        made = torch.from_numpy(bits)
        return made.view(getattr(torch, str(self.dtype))) if bits.dtype.name != self.dtype else made

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("it has no dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<ckptfs.Array {self.tree}:{self.name} {self.dtype} {list(self.shape)}>"


class Arrays(Mapping):
    """The arrays of a step by name; by "TREE:NAME" where several trees have the name."""

    def __init__(self, store: str, step: str) -> None:
        of = _Set(store, step)
        every = [Array(of, i, info) for i, info in enumerate(of.infos())]
        count: Dict[str, int] = {}
        for a in every:
            count[a.name] = count.get(a.name, 0) + 1
        self._full = {f"{a.tree}:{a.name}": a for a in every}
        self._at = {a.name if count[a.name] == 1 else f"{a.tree}:{a.name}": a for a in every}

    def __getitem__(self, name: str) -> Array:
        return self._at[name] if name in self._at else self._full[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)


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


def arrays(step: Union[Step, str, os.PathLike[str]]) -> Arrays:
    """The arrays of a step, mounted or not: one of `ckptfs.latest()` and the like, or its path in a mount."""
    store = getattr(step, "store", None)
    return Arrays(store, step.name) if store is not None else Arrays(*_split(os.fspath(step)))  # type: ignore[union-attr,arg-type]


def checks(step: Union[Step, str, os.PathLike[str]], read_data: bool = False) -> Dict[str, Any]:
    """The answer of `ckptfs check --json` for a step: {"healthy", "arrays", "findings": [...], ...}."""
    program = os.environ.get("CKPTFS_PROGRAM") or shutil.which("ckptfs")
    if program is None:
        raise Error(errno.ENOENT, "the program is in none of PATH's directories; CKPTFS_PROGRAM may say where it is", "ckptfs")
    store = getattr(step, "store", None)
    which = [store, step.name] if store is not None else list(_split(os.fspath(step)))  # type: ignore[union-attr,arg-type]
    command = [program, "check", *which, "--json", *(["--read-data"] if read_data else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout or "{}")
    if "findings" not in answer:
        raise Error(errno.EIO, answer.get("error") or done.stderr.strip() or "it said nothing", "/".join(which))
    return answer


def findings(step: Union[Step, str, os.PathLike[str]], read_data: bool = True) -> List[Dict[str, Any]]:
    """The findings of checks(), elements read."""
    return checks(step, read_data)["findings"]
