"""A step that is being saved: a folder to write files into, and its commit."""

from __future__ import annotations

import errno
import json
import os
import weakref
from ctypes import byref, c_void_p
from pathlib import Path
from typing import Any, Mapping, Optional, Union

from . import _library
from ._library import Error

StorePath = Union[str, "os.PathLike[str]"]


def _metadata(metrics: Optional[Mapping[str, float]], extras: Optional[Mapping[str, Any]], temporary: bool = False) -> Optional[bytes]:
    said: dict[str, Any] = {}
    if metrics:
        said["metrics"] = {name: float(value) for name, value in metrics.items()}
    if extras:
        said["extras"] = dict(extras)
    if temporary:
        said["temporary"] = True
    return json.dumps(said).encode() if said else None


_REFUSED = {
    errno.EEXIST: "a step of this name is there; overwrite=True saves over it",
    errno.ENOENT: "its folder is not there; mkdir makes it, in a mount",
    errno.EBUSY: "a file of it is open for writing, or another process changes the store",
    errno.EINVAL: "its name or metadata is not of the form that a step may have",
    errno.EFBIG: "its metadata is too large",
    errno.ESTALE: "somebody else has removed it",
    errno.EREMOTEIO: "the mount refused it; `ckptfs status` says why",
}


def _free(lib: Any, save: c_void_p, process: int) -> None:
    if process == os.getpid():
        lib.ckpt_save_free(save)


class Staged:
    """A step that is being saved, in no listing until it is committed. One thread at a time; in the process that began it."""

    def __init__(self, store: StorePath, name: Union[str, int], overwrite: bool = False) -> None:
        self.store = os.fspath(store)
        self.name = str(name)
        self._what = f"{self.store}/{self.name}"
        self._save: Optional[c_void_p] = c_void_p()
        with _library.Handle(self.store) as handle:
            self._lib = handle.lib
            flags = _library.FORCE if overwrite else 0
            _library.check(self._lib.ckpt_begin(handle.at, os.fsencode(self.name), flags, byref(self._save)), self._what, _REFUSED)
        self.path = Path(os.fsdecode(self._lib.ckpt_save_path(self._save)))  # write its files there, and close them
        self._process = os.getpid()
        self._end = weakref.finalize(self, _free, self._lib, self._save, self._process)

    def commit(
        self, metrics: Optional[Mapping[str, float]] = None, extras: Optional[Mapping[str, Any]] = None, temporary: bool = False
    ) -> None:
        """Lists it, whole and on disk. After an exception it may be called again."""
        self._commit(_metadata(metrics, extras, temporary))

    def _commit(self, said: Optional[bytes]) -> None:
        if self._save is None:
            raise Error(errno.EALREADY, "it was committed or aborted", self._what)
        _library.check(self._lib.ckpt_save_commit(self._save, said), self._what, _REFUSED)
        self._close()

    def abort(self) -> None:
        """Drops its files. A step that is neither committed nor aborted stays in `ckptfs sessions`.

        In a forked child it does nothing: the step is its parent's.
        """
        if self._save is not None and self._process == os.getpid():
            self._lib.ckpt_save_abort(self._save)
            self._close()

    def _close(self) -> None:
        self._end()
        self._save = None


def make_folder(store: StorePath, folder: str) -> None:
    """The folder of a run's steps, in a mount. In a store that is not mounted it has to be there."""
    if folder and os.path.ismount(store):
        os.makedirs(os.path.join(store, folder), exist_ok=True)
