"""Loading by a template: many arrays at once, into memory of NumPy, torch or JAX."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping
from ctypes import POINTER, byref, c_int, c_int64, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import _jax, _library
from ._library import Error
from .cuda import local

if TYPE_CHECKING:
    import numpy as np

log = logging.getLogger("ckptfs")

SHAPES = {"strict": 0, "relaxed": 1, "padded": 2}
STRICT = {
    "assume_ok_unexpected": 0,
    "log_unexpected": 1,
    "log_all": 2,
    "raise_unexpected": 3,
    "raise_all": 4,
    "return_unexpected": 5,
    "return_all": 6,
    "ignore_all": 7,
}
FITTED = ("same", "first", "reshaped", "padded", "kept", "absent")
KEPT, ABSENT = 4, 5


def numpy_type(name: str) -> np.dtype[Any]:
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        raise Error(errno.ENOTSUP, "NumPy has no such type; install ml_dtypes", name) from None
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def torch_type(name: str) -> Any:
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise Error(errno.ENOTSUP, "this torch has no such type", name)
    return found


def is_floating(name: Optional[str]) -> bool:
    """The types that the library casts: float16 to float64, bfloat16, and the 8-bit floats but for scales."""
    return name is not None and name.startswith(("float", "bfloat")) and not name.startswith(("float8_e8m0", "float4_", "float6_"))


# --- Requests ---------------------------------------------------------------------------------------------------------


@dataclass
class Request:
    """struct ckpt_array_request. The memory at `into` outlives the call."""

    name: str
    dtype: Optional[str] = None
    shape: Optional[Sequence[int]] = None
    shapes: int = 0
    start: Optional[Sequence[int]] = None
    extent: Optional[Sequence[int]] = None
    into: Optional[int] = None  # an address
    strides: Optional[Sequence[int]] = None  # in bytes


def _numbers(of: Any, values: Optional[Sequence[int]]) -> Any:
    return None if values is None else (of * max(len(values), 1))(*values)


def _structs(requests: Sequence[Request]) -> Any:
    made = (_library.ArrayRequest * max(len(requests), 1))()
    for at, r in zip(made, requests):
        at.name, at.dtype, at.shapes, at.into = os.fsencode(r.name), _library.encode(r.dtype), r.shapes, r.into
        at.shape, at.start, at.extent = (_numbers(c_uint64, v) for v in (r.shape, r.start, r.extent))
        at.strides = _numbers(c_int64, r.strides)
        ranks = {len(v) for v in (r.shape, r.start, r.extent, r.strides) if v is not None}
        if len(ranks) > 1:
            raise ValueError(f"its shape, box and strides have several ranks: {r}")
        at.ndim = max(ranks, default=0)
    return made


def read(lib: Any, at: c_void_p, requests: Sequence[Request], at_once: int = 1) -> List[int]:
    """How each was fitted, or -errno."""
    results = (c_int * max(len(requests), 1))()
    lib.ckpt_array_set_read_many(at, _structs(requests), len(requests), at_once, results)
    return list(results[: len(requests)])


@dataclass
class Matched:
    refused: int
    message: Optional[str]
    missing: List[str]
    unexpected: List[str]
    results: List[int]


def match(lib: Any, at: c_void_p, requests: Sequence[Request], strict: str, what: str) -> Matched:
    if strict not in STRICT:
        raise ValueError(f"Invalid strict flag: {strict!r}; it is one of {', '.join(STRICT)}")
    found = POINTER(_library.ArrayMatch)()
    _library.check(lib.ckpt_array_set_match(at, _structs(requests), len(requests), STRICT[strict], byref(found)), what)
    try:
        m = found.contents
        return Matched(
            m.refused,
            _library.decode(m.message),
            [os.fsdecode(m.missing[i]) for i in range(m.missing_count)],
            [os.fsdecode(m.unexpected[i]) for i in range(m.unexpected_count)],
            list(m.results[: m.count]),
        )
    finally:
        lib.ckpt_array_match_free(found)


# --- Templates --------------------------------------------------------------------------------------------------------


@dataclass
class Loaded:
    """The result of load()."""

    arrays: Any  # as the template; names that the step lacks are left out where the mode says to go on without
    missing: List[str] = field(default_factory=list)  # of the step, and not in the template
    unexpected: List[str] = field(default_factory=list)  # of the template, and not in the step
    # By name: same, first, reshaped, padded, kept (it is the template's own value) or absent.
    fitted: Dict[str, str] = field(default_factory=dict)


class _Left:
    """The place of a leaf that is left out."""


def _is_array(leaf: Any) -> bool:
    return leaf is None or (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))


def _walk(tree: Any, name: str, call: Callable[[Any, str], Any]) -> Any:
    """The tree with call(leaf, name) in the place of each leaf that is an array."""

    def inner(key: Any) -> str:
        return f"{name}.{key}" if name else str(key)

    if isinstance(tree, Mapping):
        pairs = ((k, _walk(v, inner(k), call)) for k, v in tree.items())
        return {k: v for k, v in pairs if v is not _Left}
    if isinstance(tree, (list, tuple)):
        values: List[Any] = [None if v is _Left else v for v in (_walk(v, inner(i), call) for i, v in enumerate(tree))]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    return call(tree, name) if _is_array(tree) else tree


def overlaps(tensor: Any) -> bool:
    """Elements of a torch tensor share memory, as those of an expanded one."""
    extent = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size > 1):
        if stride < extent:
            return True
        extent += stride * (size - 1)
    return False


def _own_memory(value: Any, name: str) -> Any:
    """The tensor whose memory is that of a torch tensor on the CPU. ValueError: it has none that can be filled."""
    try:
        own = local(value).detach()
        fits = str(own.layout) == "torch.strided" and not own.is_conj() and not own.is_neg() and not overlaps(own)
        if fits and (own.data_ptr() or not own.numel()):
            return own
    except (TypeError, RuntimeError) as e:  # as of tensors that other processes have parts of
        raise ValueError(f"{name}: it cannot be filled in its place: {e}") from None
    raise ValueError(f"{name}: it cannot be filled in its place: its elements have no memory of their own")


@dataclass
class _Leaf:
    """A leaf of the template, and what is read for it."""

    name: str
    value: Any
    kind: str  # numpy, torch, jax
    shape: Optional[Tuple[int, ...]]
    dtype: Optional[str]  # of the result; None: that of the step
    request: Request
    found: Optional[str] = None  # dtype in the step
    found_shape: Tuple[int, ...] = ()
    result: int = ABSENT
    own: Any = None  # the tensor that is filled in its place
    made: Any = None

    def read_dtype(self) -> Optional[str]:
        """The dtype of the memory that is read into: others than floating ones are cast by NumPy or torch."""
        return self.dtype if is_floating(self.dtype) and is_floating(self.found) else self.found


def _kind(leaf: Any) -> str:
    module = type(leaf).__module__.split(".")[0]
    return module if module == "torch" else "jax" if module in ("jax", "jaxlib") else "numpy"


class Loading:
    """One call of Arrays.load()."""

    def __init__(
        self, of: Any, what: str, shapes: Union[str, Callable[[str], str]], dtype: Optional[str], in_place: bool
    ) -> None:
        self.set = of
        self.what = what
        self.shapes: Callable[[str], str] = (lambda name, rule=shapes: rule) if isinstance(shapes, str) else shapes  # type: ignore[misc]
        self.dtype = dtype
        self.in_place = in_place
        self.infos: Dict[str, Tuple[Optional[str], Tuple[int, ...]]] = {}
        for info in of.infos():
            name = os.fsdecode(info.name)
            found = (_library.decode(info.dtype), tuple(info.shape[k] for k in range(info.ndim)))
            for key in (f"{os.fsdecode(info.tree)}:{name}", name):
                self.infos.setdefault(key, found)  # the one that is read: the first where a tree has a name twice

    def leaf(self, value: Any, name: str) -> _Leaf:
        rule = self.shapes(name)
        if rule not in SHAPES:
            raise ValueError(f"no rule for shapes: {rule!r}; it is one of {', '.join(SHAPES)}")
        shape = None if value is None else tuple(int(n) for n in value.shape)
        dtype = None if value is None else str(value.dtype).replace("torch.", "")
        found, found_shape = self.infos.get(name, (None, ()))
        if self.dtype is not None and is_floating(dtype or found):
            dtype = self.dtype
        leaf = _Leaf(name, value, _kind(value), shape, dtype, Request(name), found, found_shape)
        leaf.request = Request(name, leaf.read_dtype(), shape, SHAPES[rule])
        if leaf.kind == "torch" and value.is_quantized:
            raise TypeError(f"{name}: it is quantised, and no file has its scales")
        if leaf.kind == "torch" and self._in_place(leaf):
            leaf.own = _own_memory(value, name)
        return leaf

    # --- Memory -------------------------------------------------------------------------------------------------------

    def _in_place(self, leaf: _Leaf) -> bool:
        if not self.in_place or leaf.value is None or leaf.dtype != leaf.read_dtype() or leaf.kind == "jax":
            return False
        if leaf.kind == "torch":
            return bool(leaf.value.device.type == "cpu" and leaf.dtype == str(leaf.value.dtype).replace("torch.", ""))
        return bool(getattr(leaf.value, "flags", None) is not None and leaf.value.flags.writeable and leaf.dtype == leaf.value.dtype.name)

    def make(self, leaf: _Leaf) -> None:
        """The memory that is read into."""
        shape = leaf.found_shape if leaf.shape is None else leaf.shape
        dtype = str(leaf.read_dtype())
        if leaf.kind == "torch":
            import torch

            leaf.made = torch.empty(shape, dtype=torch_type(dtype)) if leaf.own is None else leaf.own
            leaf.request.into = leaf.made.data_ptr() or None
            leaf.request.strides = [n * leaf.made.element_size() for n in leaf.made.stride()]
        else:
            import numpy as np

            leaf.made = leaf.value if self._in_place(leaf) else np.empty(shape, numpy_type(dtype))
            leaf.request.into = leaf.made.ctypes.data
            leaf.request.strides = leaf.made.strides

    def finish(self, leaf: _Leaf) -> Any:
        """The memory as the template's kind of array."""
        made, dtype = leaf.made, leaf.dtype or leaf.found
        if leaf.kind == "torch":
            if leaf.own is not None:
                return leaf.value
            # The meta device keeps no bytes.
            device = "cpu" if leaf.value.device.type == "meta" else leaf.value.device
            return made.to(device=device, dtype=torch_type(str(dtype)))
        if dtype != made.dtype.name:
            made = made.astype(numpy_type(str(dtype)))
        if leaf.kind == "jax":
            import jax

            sharding = getattr(leaf.value, "sharding", None)
            return jax.numpy.asarray(made) if sharding is None else jax.device_put(made, sharding)
        return made

    def _is_split(self, leaf: _Leaf) -> bool:
        sharding = getattr(leaf.value, "sharding", None) if leaf.kind == "jax" else None
        return sharding is not None and len(sharding.device_set) > 1

    def read_split(self, leaf: _Leaf) -> Any:
        """A JAX array over several devices: each process reads the boxes of its own."""
        import jax
        import numpy as np

        boxes: Dict[Tuple[Tuple[int, int], ...], Any] = {}  # several devices may have one of them

        shape = leaf.shape or ()

        def part(index: Any) -> Any:
            start, extent = _jax.box(index, shape)
            at = tuple((a, a + n) for a, n in zip(start, extent))
            if at not in boxes:
                boxes[at] = box_of(at)
            # jax.pmap takes an axis away.
            return boxes[at].reshape([n for n, i in zip(extent, index) if isinstance(i, slice)])

        def box_of(at: Tuple[Tuple[int, int], ...]) -> Any:
            box = np.empty([to - start for start, to in at], numpy_type(str(leaf.read_dtype())))
            r = leaf.request
            asked = Request(
                r.name, r.dtype, r.shape, r.shapes, [a for a, _ in at], [b - a for a, b in at], into=box.ctypes.data
            )
            self.set.read_all([asked])
            return box.astype(numpy_type(str(leaf.dtype)), copy=False)

        return jax.make_array_from_callback(shape, leaf.value.sharding, part)

    # --- All of it ----------------------------------------------------------------------------------------------------

    def _read(self, leaves: List[_Leaf], at_once: int) -> None:
        whole = [leaf for leaf in leaves if not self._is_split(leaf)]
        for leaf in whole:
            self.make(leaf)
        self.set.read_all([leaf.request for leaf in whole], at_once)

    def load(self, template: Any, strict: str, callback: Optional[Callable[[Any, str], Any]], chunk_size: int, at_once: int) -> Loaded:
        leaves: Dict[str, _Leaf] = {}

        def collect(value: Any, name: str) -> None:
            leaves[name] = self.leaf(value, name)

        _walk(template, "", collect)
        every = list(leaves.values())
        matched = match(self.set.lib, self.set.at, [leaf.request for leaf in every], strict, self.what)
        if matched.refused:
            raise Error(-matched.refused, matched.message or os.strerror(-matched.refused), self.what)
        if matched.message:
            log.warning("%s: %s", self.what, matched.message)
        for leaf, result in zip(every, matched.results):
            leaf.result = result
        done: Dict[str, Any] = {leaf.name: leaf.value for leaf in every if leaf.result == KEPT}
        wanted = [leaf for leaf in every if leaf.result not in (KEPT, ABSENT)]
        size = chunk_size if chunk_size > 0 else max(len(wanted), 1)
        for i in range(0, len(wanted), size):
            self._read(wanted[i : i + size], at_once)
            for leaf in wanted[i : i + size]:
                value = self.read_split(leaf) if self._is_split(leaf) else self.finish(leaf)
                leaf.made = None
                done[leaf.name] = callback(value, leaf.name) if callback else value
        fitted = {leaf.name: FITTED[leaf.result] for leaf in every}
        return Loaded(_walk(template, "", lambda _, name: done.get(name, _Left)), matched.missing, matched.unexpected, fitted)
