"""libckptfs by ctypes: its calls, its structs, and its errors as exceptions. The header ckptfs.h says what each means."""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
import shutil
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

CREATE = 1
FORCE = 1
SEALED = 1


class Info(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("path", c_char_p),
        ("metadata", c_char_p),
        ("number", c_int64),
        ("version", c_uint64),
        ("files", c_uint64),
        ("bytes", c_uint64),
        ("committed_ns", c_int64),
        ("first_committed_ns", c_int64),
        ("flags", c_uint64),
    ]


class ArrayInfo(ctypes.Structure):
    _fields_ = [
        ("tree", c_char_p),
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("format", c_char_p),
        ("why", c_char_p),
        ("shape", POINTER(c_uint64)),
        ("ndim", c_uint),
        ("width", c_uint),
        ("bytes", c_uint64),
    ]


class Choice(ctypes.Structure):
    _fields_ = [("mode", c_int), ("path", c_char_p), ("store", c_char_p), ("step", c_char_p)]


class Question(ctypes.Structure):
    _fields_ = [
        ("step", c_int64),
        ("latest", c_int64),
        ("committed_ns", c_int64),
        ("count", c_uint64),
        ("now_ns", c_int64),
        ("flags", c_uint64),
    ]


class ArrayRequest(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("shape", POINTER(c_uint64)),
        ("ndim", c_uint),
        ("shapes", c_uint),
        ("start", POINTER(c_uint64)),
        ("extent", POINTER(c_uint64)),
        ("into", c_void_p),
        ("strides", POINTER(c_int64)),
        ("flat_start", c_uint64),
        ("flat_count", c_uint64),
        ("has_flat", c_uint),
    ]


class ArrayMatch(ctypes.Structure):
    _fields_ = [
        ("refused", c_int),
        ("message", c_char_p),
        ("missing", POINTER(c_char_p)),
        ("unexpected", POINTER(c_char_p)),
        ("missing_count", c_size_t),
        ("unexpected_count", c_size_t),
        ("results", POINTER(c_int)),
        ("count", c_size_t),
    ]


DecideFn = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Question))

_INT_CALLS = {
    "ckpt_open": [c_char_p, c_uint, POINTER(c_void_p)],
    "ckpt_list": [c_void_p, c_char_p, POINTER(c_void_p)],
    "ckpt_find": [c_void_p, c_char_p, POINTER(POINTER(Info))],
    "ckpt_find_latest": [c_void_p, c_char_p, c_char_p, POINTER(POINTER(Info))],
    "ckpt_resolve": [c_void_p, c_char_p, c_char_p, c_char_p, c_char_p, POINTER(POINTER(Choice))],
    "ckpt_should_save": [c_void_p, c_char_p, c_int64, c_uint, DecideFn, c_void_p, POINTER(c_int)],
    "ckpt_begin": [c_void_p, c_char_p, c_uint, POINTER(c_void_p)],
    "ckpt_save_commit": [c_void_p, c_char_p],
    "ckpt_save_abort": [c_void_p],
    "ckpt_step_note": [c_void_p, c_char_p, c_char_p],
    "ckpt_wait": [c_void_p, c_char_p, c_uint, c_int64],
    "ckpt_array_set_open": [c_void_p, c_char_p, POINTER(c_void_p)],
    "ckpt_array_set_read": [c_void_p, c_size_t, POINTER(c_uint64), POINTER(c_uint64), c_void_p],
    "ckpt_array_set_read_many": [c_void_p, POINTER(ArrayRequest), c_size_t, c_uint, POINTER(c_int)],
    "ckpt_array_set_match": [c_void_p, POINTER(ArrayRequest), c_size_t, c_uint, POINTER(POINTER(ArrayMatch))],
}
_OTHER_CALLS = {
    "ckpt_version": (c_char_p, []),
    "ckpt_close": (None, [c_void_p]),
    "ckpt_directory": (c_char_p, [c_void_p]),
    "ckpt_info_free": (None, [POINTER(Info)]),
    "ckpt_list_count": (c_size_t, [c_void_p]),
    "ckpt_list_at": (POINTER(Info), [c_void_p, c_size_t]),
    "ckpt_list_free": (None, [c_void_p]),
    "ckpt_choice_free": (None, [POINTER(Choice)]),
    "ckpt_save_path": (c_char_p, [c_void_p]),
    "ckpt_save_free": (None, [c_void_p]),
    "ckpt_array_set_free": (None, [c_void_p]),
    "ckpt_array_match_free": (None, [POINTER(ArrayMatch)]),
    "ckpt_array_set_count": (c_size_t, [c_void_p]),
    "ckpt_array_set_at": (POINTER(ArrayInfo), [c_void_p, c_size_t]),
}


def _candidates() -> Iterator[str]:
    """A path of the user's own, what the loader finds, and the place beside the program."""
    named = os.environ.get("CKPTFS_LIBRARY")
    if named:
        yield named
        return
    yield "libckptfs.so.1"
    found = ctypes.util.find_library("ckptfs")
    if found:
        yield found
    program = shutil.which("ckptfs")
    if program:
        home = Path(program).resolve().parent
        for beside in (home, *sorted(home.parent.glob("lib*")), *sorted(home.parent.glob("lib*/*-linux-*"))):
            if (beside / "libckptfs.so.1").exists():
                yield str(beside / "libckptfs.so.1")


def _load() -> ctypes.CDLL:
    tried = []
    for name in _candidates():
        try:
            library = ctypes.CDLL(name)
            break
        except OSError as e:
            tried.append(str(e))
    else:
        raise ImportError(
            f"libckptfs.so.1 cannot be loaded ({'; '.join(tried)}); install ckptfs, or set CKPTFS_LIBRARY to its path"
        )
    for call, arguments in _INT_CALLS.items():
        function = getattr(library, call)
        function.restype, function.argtypes = c_int, arguments
    for call, (result, arguments) in _OTHER_CALLS.items():
        function = getattr(library, call)
        function.restype, function.argtypes = result, arguments
    return library


_loaded: Optional[ctypes.CDLL] = None


def library() -> ctypes.CDLL:
    """The library, loaded at the first call."""
    global _loaded
    if _loaded is None:
        _loaded = _load()
    return _loaded


class Error(OSError):
    """A refusal or failure of ckptfs; errno says which, strerror what it means here."""


_COMMON = {
    errno.ENOTSUP: "it was made by a newer version of ckptfs",
    errno.EMEDIUMTYPE: "it is a directory, and no store; `ckptfs init` makes one",
    errno.EACCES: "it belongs to somebody else",
}


def check(result: int, what: str, meanings: Optional[dict[int, str]] = None) -> None:
    """Raises the exception of a call's result. meanings: of an errno for this call."""
    if not result:
        return
    code = -result
    if code == errno.ENOMEM:
        raise MemoryError(what)
    raise Error(code, (meanings or {}).get(code) or _COMMON.get(code) or os.strerror(code), what)


def encode(text: Optional[str]) -> Optional[bytes]:
    return None if text is None else os.fsencode(text)


def decode(text: Optional[bytes]) -> Optional[str]:
    return None if text is None else os.fsdecode(text)


class Handle:
    """A store that is open. Threads may share it."""

    def __init__(self, path: str, create: bool = False) -> None:
        self.path = path
        self.at = c_void_p()
        self.lib = library()
        check(
            self.lib.ckpt_open(os.fsencode(path), CREATE if create else 0, byref(self.at)),
            path,
            {errno.ENOENT: "there is no store; `ckptfs mount DIR` or `ckptfs init DIR` makes one", errno.EINVAL: "it is inside of a store, not one"},
        )

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *why: Any) -> None:
        self.lib.ckpt_close(self.at)
        self.at = c_void_p()


def decider(function: Optional[Callable[[Question], int]]) -> tuple[Any, list[BaseException]]:
    """The C function of one in Python, and where an exception of it is kept: none may pass through C."""
    raised: list[BaseException] = []
    if function is None:
        return DecideFn(), raised

    def decide(_arg: Any, question: Any) -> int:
        try:
            return int(function(question.contents))
        except BaseException as e:
            raised.append(e)
            return -errno.ECANCELED

    return DecideFn(decide), raised
