"""Checkpoints of training runs, as ckptfs keeps them: a step is complete, or it is not there.

    import ckptfs

    with ckptfs.step("/ckpt", 1000, metrics={"loss": 1.5}) as folder:
        torch.save(model.state_dict(), folder / "model.pt")

    newest = ckptfs.latest("/ckpt")
    weight = ckptfs.arrays(newest)["layers.0.weight"]     # lazy: weight[10:20] reads these rows

A store is called by its directory or by where it is mounted. All calls may be made by several threads at once; each looks at the
store anew. Exceptions are `ckptfs.Error`, an OSError whose strerror says what to do.
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import errno
import json
import os
from ctypes import POINTER, byref, c_int, c_void_p
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator, List, Mapping, Optional, Union

from . import _library
from ._arrays import Array, Arrays, arrays, checks, findings, newest_healthy
from ._library import Error, Question
from ._load import Loaded
from ._staged import Staged, _metadata
from ._staged import StorePath as StorePath
from ._state import Saving, load, save, save_async

__all__ = [
    "Answer", "Array", "Arrays", "Choice", "Error", "Loaded", "Mode", "Question", "Saving", "Staged", "Step", "arrays", "begin", "checks",
    "find", "findings", "latest", "load", "note", "resolve", "save", "save_async", "should_save", "step", "steps", "version", "wait",
]  # fmt: skip

@dataclass(frozen=True)
class Step:
    """A committed step."""

    store: str  # as the caller called it
    name: str  # "1000", "run7/1000"
    number: Optional[int]
    path: Optional[Path]  # of its directory in a mount on this machine; None: it is not mounted here
    version: int  # from 1
    files: int
    bytes: int
    committed_at: datetime.datetime  # this version, UTC
    first_committed_at: datetime.datetime
    metrics: Mapping[str, float] = field(default_factory=dict)
    extras: Mapping[str, Any] = field(default_factory=dict)
    temporary: bool = False
    pinned: bool = False
    sealed: bool = False  # the SHA-256 of each file is kept

    def __fspath__(self) -> str:
        if self.path is None:
            raise Error(errno.ENOENT, "its store is not mounted on this machine; `ckptfs mount` does it", self.name)
        return str(self.path)


class Mode(enum.IntEnum):
    """The kinds of things to load."""

    SCRATCH = 0
    RESUME = 1
    FULL_STATE = 2
    PARAMETERS = 3


@dataclass(frozen=True)
class Choice:
    """The checkpoint that a run loads at its start; false: none."""

    mode: Mode
    path: Optional[Path]  # where it can be read; None: it is in a store that is not mounted here, or there is none
    store: Optional[str]
    step: Optional[str]

    def __bool__(self) -> bool:
        return self.mode != Mode.SCRATCH


class Answer(enum.IntEnum):
    """An answer: save or not; false is no. The next step takes the place of a temporary one."""

    NO = 0
    TEMPORARY = 1
    PERMANENT = 2


def version() -> str:
    """Of the library that is loaded: "0.1.0"."""
    return os.fsdecode(_library.library().ckpt_version())


def _time(ns: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(microseconds=ns // 1000)


def _step(store: str, info: _library.Info) -> Step:
    said = json.loads(info.metadata or b"{}")
    path = _library.decode(info.path)
    return Step(
        store=store,
        name=os.fsdecode(info.name),
        number=None if info.number < 0 else info.number,
        path=None if path is None else Path(path),
        version=info.version,
        files=info.files,
        bytes=info.bytes,
        committed_at=_time(info.committed_ns),
        first_committed_at=_time(info.first_committed_ns),
        metrics=said.get("metrics", {}),
        extras=said.get("extras", {}),
        temporary=bool(info.flags & 1),
        pinned=bool(info.flags & 2),
        sealed=bool(info.flags & 4),
    )


def steps(store: StorePath, folder: Optional[str] = "") -> List[Step]:
    """The committed steps of a folder, in the order of their commits; folder None: of the whole store."""
    where = os.fspath(store)
    with _library.Handle(where) as handle:
        at = c_void_p()
        _library.check(handle.lib.ckpt_list(handle.at, _library.encode(folder), byref(at)), where)
        try:
            return [_step(where, handle.lib.ckpt_list_at(at, i).contents) for i in range(handle.lib.ckpt_list_count(at))]
        finally:
            handle.lib.ckpt_list_free(at)


def _found(handle: _library.Handle, result: int, info: Any, what: str) -> Optional[Step]:
    if result == -errno.ENOENT:
        return None
    _library.check(result, what)
    try:
        return _step(handle.path, info.contents)
    finally:
        handle.lib.ckpt_info_free(info)


def latest(store: StorePath, folder: Optional[str] = "", by: Optional[str] = None, healthy: bool = False) -> Optional[Step]:
    """The newest step of a folder, or None. by: step, commit, timestamp, mtime, tracker; None: as the store is set.

    healthy: steps with trouble in their arrays are passed over, by the program ckptfs (`ckptfs latest --healthy`).
    """
    if healthy:
        name = newest_healthy(os.fspath(store), folder, by)
        return find(store, name) if name is not None else None
    with _library.Handle(os.fspath(store)) as handle:
        info = POINTER(_library.Info)()
        result = handle.lib.ckpt_find_latest(handle.at, _library.encode(folder), _library.encode(by), byref(info))
        if result == -errno.EINVAL:
            raise Error(errno.EINVAL, "there is no such order; it is step, commit, timestamp, mtime or tracker", str(by))
        return _found(handle, result, info, f"{handle.path}/{folder or ''}")


def find(store: StorePath, name: Union[str, int]) -> Optional[Step]:
    """The step of this name: 1000, "run7/1000", "latest~2". None: there is none."""
    with _library.Handle(os.fspath(store)) as handle:
        info = POINTER(_library.Info)()
        return _found(handle, handle.lib.ckpt_find(handle.at, os.fsencode(str(name)), byref(info)), info, f"{handle.path}/{name}")


def resolve(
    store: StorePath,
    folder: Optional[str] = "",
    by: Optional[str] = None,
    load_parameters_path: Optional[StorePath] = None,
    load_full_state_path: Optional[StorePath] = None,
) -> Choice:
    """The checkpoint to load when a run starts: its own newest step, else one of the two paths, else nothing."""
    where = os.fspath(store)
    meanings = {
        errno.EINVAL: "both paths are given, or there is no such order",
        errno.EBUSY: "it is being written, changed or removed",
        errno.EISDIR: "it is a folder of steps; name one step",
        errno.EMLINK: "several folders have steps; name one",
        errno.ENOTDIR: "the folder of the run is inside of a step",
    }
    with _library.Handle(where) as handle:
        at = POINTER(_library.Choice)()
        paths = [None if p is None else os.fsencode(p) for p in (load_parameters_path, load_full_state_path)]
        _library.check(handle.lib.ckpt_resolve(handle.at, _library.encode(folder), _library.encode(by), *paths, byref(at)), where, meanings)
        try:
            c = at.contents
            path = _library.decode(c.path)
            return Choice(Mode(c.mode), None if path is None else Path(path), _library.decode(c.store), _library.decode(c.step))
        finally:
            handle.lib.ckpt_choice_free(at)


def should_save(
    store: StorePath, number: int, folder: Optional[str] = None, force: bool = False, decide: Optional[Callable[[Question], int]] = None
) -> Answer:
    """Says if the step of this number is to be saved, by the store's policy or by `decide`; all who ask get one answer."""
    where = os.fspath(store)
    meanings = {errno.EMLINK: "several folders have steps; name one", errno.EBADMSG: "its policy is damaged"}
    function, raised = _library.decider(decide)
    with _library.Handle(where) as handle:
        answer = c_int()
        flags = _library.FORCE if force else 0
        result = handle.lib.ckpt_should_save(handle.at, _library.encode(folder), number, flags, function, None, byref(answer))
        if raised:
            raise raised[0]
        _library.check(result, where, meanings)
        return Answer(answer.value)


def wait(store: StorePath, name: Union[str, int], timeout: Optional[float] = None, sealed: bool = False) -> None:
    """Waits until the step is committed and on disk, whoever saves it. TimeoutError after `timeout` seconds."""
    with _library.Handle(os.fspath(store)) as handle:
        ns = -1 if timeout is None else int(timeout * 1e9)
        result = handle.lib.ckpt_wait(handle.at, os.fsencode(str(name)), _library.SEALED if sealed else 0, ns)
        if result == -errno.ETIMEDOUT:
            raise TimeoutError(errno.ETIMEDOUT, "it is not committed yet", str(name))
        _library.check(result, str(name))


def note(store: StorePath, name: Union[str, int], metrics: Optional[Mapping[str, float]] = None, extras: Optional[Mapping[str, Any]] = None) -> None:
    """Adds metrics and extras to a committed step, whoever saved it: a new version with the same files. Names that are not given stay."""
    said = _metadata(metrics, extras)
    what = f"{os.fspath(store)}/{name}"
    meanings = {
        errno.ENOENT: "there is no such step",
        errno.EBUSY: "it is being removed or changed, or another process changes the store",
        errno.EINVAL: "its metadata is not of the form that a step may have",
        errno.EFBIG: "its metadata is too large",
    }
    if said is not None:
        with _library.Handle(os.fspath(store)) as handle:
            _library.check(handle.lib.ckpt_step_note(handle.at, os.fsencode(str(name)), said), what, meanings)


def begin(store: StorePath, name: Union[str, int], overwrite: bool = False) -> Staged:
    """A step to write files into, for a program whose save is no block: `step` is the simpler form."""
    return Staged(store, name, overwrite)


@contextlib.contextmanager
def step(
    store: StorePath,
    name: Union[str, int],
    metrics: Optional[Mapping[str, float]] = None,
    extras: Optional[Mapping[str, Any]] = None,
    temporary: bool = False,
    overwrite: bool = False,
) -> Iterator[Path]:
    """A folder to write a step's files into. At the end of the block the step is committed, whole and on disk; an exception drops it.

    metrics and extras are looked at at the end, so that a dict may be filled in the block. A metric that is NaN or infinite is left out.
    """
    staged = Staged(store, name, overwrite)
    try:
        try:
            yield staged.path
            said = _metadata(metrics, extras, temporary)
        except BaseException:
            staged.abort()
            raise
        staged._commit(said)
    finally:
        staged._close()
