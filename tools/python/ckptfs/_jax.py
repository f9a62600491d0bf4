"""JAX arrays in the memory of their devices: where it is, and which part of the array each device has.

DLPack says where the memory is. Its capsule also keeps it: without one, an array that the program donates would be overwritten.
"""

from __future__ import annotations

import ctypes
import math
from ctypes import POINTER, c_int, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, Dict, List, Optional, Tuple

_CPU, _CUDA, _CUDA_HOST = 1, 2, 3  # DLDeviceType


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int),
        ("device_id", c_int),
        ("ndim", c_int),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),  # in elements; NULL: C order
        ("byte_offset", c_uint64),
    ]


_pointer_of = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


def is_array(value: Any) -> bool:
    # Its type is asked, because one that was deleted has no shards to ask for.
    of = type(value)
    return of.__module__.split(".")[0] in ("jax", "jaxlib") and hasattr(of, "addressable_shards") and hasattr(of, "__dlpack__")


def check(value: Any) -> None:
    """TypeError or ValueError: an array of JAX that nobody could save."""
    if str(getattr(value, "dtype", "")).startswith("key<"):
        raise TypeError("it is a key array of JAX: save jax.random.key_data() of it, and load that with jax.random.wrap_key_data()")
    if is_array(value) and value.is_deleted():
        raise ValueError("its memory was given up: the array was deleted, or donated to a function")


def is_split(value: Any) -> bool:
    """Its devices have different parts of it."""
    return is_array(value) and len(value.sharding.device_set) > 1 and not value.is_fully_replicated


def is_on_cuda(value: Any) -> bool:
    """ROCm's devices are called gpu, too."""
    return any("cuda" in str(getattr(d.client, "platform_version", "")).lower() for d in value.devices())


def _is_in_c_order(t: _DLTensor) -> bool:
    if not t.strides:
        return True
    step = 1
    for i in reversed(range(t.ndim)):
        if t.shape[i] != 1 and t.strides[i] != step:
            return not all(t.shape[k] for k in range(t.ndim))
        step *= t.shape[i]
    return True


def memory(value: Any) -> Optional[Tuple[int, Any]]:
    """The address of an array of one device, when it is computed, and the object that keeps it.

    None: its bytes are not there as a file has them, as those of int4 or of a transposed layout, or this JAX cannot say.
    """
    value.block_until_ready()
    try:
        capsule = value.__dlpack__()
        tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    except Exception:  # noqa: BLE001  (of jaxlib, by the type that DLPack lacks)
        return None
    if tensor.device_type not in (_CPU, _CUDA, _CUDA_HOST) or tensor.bits % 8 or not _is_in_c_order(tensor):
        return None
    return (tensor.data or 0) + tensor.byte_offset, capsule


def box(index: Tuple[Any, ...], shape: Tuple[int, ...]) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """The start and the extent of a part, of which a sharding has this index. jax.pmap takes an axis away: its place has an int."""
    at = [range(n)[i] if isinstance(i, slice) else range(i, i + 1) for i, n in zip(index, shape)]
    return tuple(r.start for r in at), tuple(len(r) for r in at)


def parts(value: Any) -> List[Tuple[Tuple[int, ...], Tuple[int, ...], Any]]:
    """The start and the extent of each part, and its array on one device; a part that several devices have is there once."""
    found: Dict[Tuple[int, ...], Tuple[Tuple[int, ...], Any]] = {}
    for shard in value.addressable_shards:
        start, extent = box(shard.index, value.shape)
        found.setdefault(start, (extent, shard.data))
    if sum(math.prod(extent) for extent, _ in found.values()) != math.prod(value.shape):
        raise TypeError("other processes have parts of it; gather it, or save it with Orbax")
    return [(start, extent, part) for start, (extent, part) in found.items()]
