"""torch.distributed.checkpoint over steps of ckptfs.

    import torch.distributed.checkpoint as dcp
    from ckptfs.dcp import Reader, Writer

    dcp.save(state, storage_writer=Writer("/ckpt", 1000, metrics={"loss": 1.5}))
    dcp.load(state, storage_reader=Reader(ckptfs.latest("/ckpt")))

A step is committed when the coordinator has written `.metadata`: finish() returns then. Its files are those of torch's own
FileSystemWriter, so that torch's FileSystemReader reads them in a mount. Ranks write into one folder: those on other machines
need the store's mount at the same path.

The reader reads tensors of any format that ckptfs knows: a step of safetensors or Orbax can be loaded into a sharded model. Each rank
reads the boxes that it needs, in a store that is mounted or not.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import pickle
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Union

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from . import Arrays, Staged, Step, StorePath, arrays
from ._library import Error
from ._load import Request, is_floating, torch_type

if TYPE_CHECKING:
    from torch.distributed.checkpoint.storage import WriteResult

__all__ = ["Reader", "Writer"]


@dataclasses.dataclass
class _Place:
    """The storage data of a rank's plan: where the coordinator wants its files."""

    path: str
    of: Any  # FileSystemWriter's own


class Writer(FileSystemWriter):
    """A StorageWriter that saves a step. One object saves one step, or one after the other with `checkpoint_id=` as the name.

    metrics and extras are looked at at the end of the save. Other keywords are those of FileSystemWriter.
    """

    def __init__(
        self,
        store: StorePath,
        name: Union[str, int, None] = None,
        metrics: Optional[Mapping[str, float]] = None,
        extras: Optional[Mapping[str, Any]] = None,
        temporary: bool = False,
        overwrite: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(os.fspath(store), **more)
        self.store = os.fspath(store)
        self.name = None if name is None else str(name)
        self.metrics = metrics
        self.extras = extras
        self.temporary = temporary
        self.replaces = overwrite
        self._staged: Optional[Staged] = None

    def reset(self, checkpoint_id: Union[str, os.PathLike[str], None] = None) -> None:
        self.abort()
        super().reset(None)
        if checkpoint_id is not None:
            self.name = os.fspath(checkpoint_id) if not isinstance(checkpoint_id, int) else str(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)
        if not self.use_collectives:
            raise Error(errno.ENOTSUP, "a step has one commit: save with use_collectives=True", self.store)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: List[SavePlan]) -> List[SavePlan]:
        if self.name is None:
            raise ValueError("the step has no name: Writer(store, name), or dcp.save(..., checkpoint_id=name)")
        self.abort()  # torch calls reset() for a save that is tried again with checkpoint_id= alone
        self._staged = Staged(self.store, self.name, self.replaces)
        path = str(self._staged.path)
        return [dataclasses.replace(p, storage_data=_Place(path, p.storage_data)) for p in super().prepare_global_plan(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[List[WriteResult]]:
        self.path = self.fs.init_path(plan.storage_data.path)
        return super().write_data(dataclasses.replace(plan, storage_data=plan.storage_data.of), planner)

    def finish(self, metadata: Metadata, results: List[List[WriteResult]]) -> None:
        if self._staged is None:
            raise Error(errno.EALREADY, "no save has begun", self.store)
        try:
            super().finish(metadata, results)
            self._staged.commit(self.metrics, self.extras, self.temporary)
        except BaseException:
            self.abort()
            raise
        self._staged = None

    def abort(self) -> None:
        """Drops what a failed save has left. The next save does it as well."""
        if self._staged is not None:
            self._staged.abort()
            self._staged = None

    @property
    def checkpoint_id(self) -> Union[str, os.PathLike[str]]:
        return f"{self.store}/{self.name}"

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Union[str, os.PathLike[str]]) -> bool:
        return bool(os.fspath(checkpoint_id))

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_staged": None}


class _ByFunction(Dict[str, Any]):
    """The arrays of a step, by names that a function translates."""

    def __init__(self, found: Mapping[str, Any], name: Callable[[str], str]) -> None:
        super().__init__(found)
        self.name = name

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and super().__contains__(self.name(key))

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(self.name(key))

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(self.name(key), default)


class Reader(StorageReader):
    """A StorageReader of a step: one of `ckptfs.latest()` and the like, or its path.

    names: for the name of a tensor in the state, the name of the array in the step, where it is another one: {state: step}, or a function.
    Objects that are no tensors are read from `.metadata`'s checkpoint, which is a pickle, in a mount alone; torch's own
    reader does that.
    """

    def __init__(
        self, step: Union[Step, str, os.PathLike[str]], names: Union[Mapping[str, str], Callable[[str], str], None] = None, at_once: int = 0
    ) -> None:
        super().__init__()
        self.step = step
        self.at_once = at_once
        self._name: Callable[[str], str] = names if callable(names) else lambda name: (names or {}).get(name, name)
        self._names = names
        self._arrays: Optional[Arrays] = None
        self._files: Optional[FileSystemReader] = None
        self._found: Dict[str, Any] = {}  # the metadata of what can be loaded, by names of the state
        self.storage_data: Any = None

    def reset(self, checkpoint_id: Union[str, os.PathLike[str], None] = None) -> None:
        if checkpoint_id is not None:
            self.step = checkpoint_id
        self._arrays = self._files = None

    @property
    def arrays(self) -> Arrays:
        if self._arrays is None:
            self._arrays = arrays(self.step)
        return self._arrays

    def _own_files(self) -> Optional[FileSystemReader]:
        path = self.step.path if isinstance(self.step, Step) else self.step
        if path is None or not os.path.exists(os.path.join(path, ".metadata")):
            return None
        return FileSystemReader(path)

    def _renamed(self, found: Dict[str, Any]) -> Dict[str, Any]:
        if callable(self._names):
            return _ByFunction(found, self._names)
        backwards = {there: here for here, there in (self._names or {}).items()}
        return {backwards.get(name, name): of for name, of in found.items()}

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        self._files = self._own_files()
        if self._files is not None:
            try:
                read = self._files.read_metadata()
                return dataclasses.replace(read, state_dict_metadata=self._renamed(read.state_dict_metadata))
            except (pickle.UnpicklingError, EOFError) as e:
                raise Error(errno.EBADMSG, f"its .metadata is damaged: {e}", os.fspath(self.step)) from e
        found: Dict[str, Any] = {}
        for name, array in self.arrays.items():
            if array.why is None and array.dtype is not None:
                whole = ChunkStorageMetadata(torch.Size([0] * len(array.shape)), torch.Size(array.shape))
                properties = TensorProperties(dtype=torch_type(array.dtype))
                found[name] = TensorStorageMetadata(properties, torch.Size(array.shape), [whole])
        return Metadata(self._renamed(found), storage_data={}, storage_meta=StorageMeta())

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        # Metadata is read by the coordinator alone, and sent: other ranks know by it what else there is.
        self._found = metadata.state_dict_metadata
        self.storage_data = metadata.storage_data
        if metadata.storage_data and self._files is None:
            self._files = self._own_files()
        if self._files is not None:
            self._files.set_up_storage_reader(metadata, is_coordinator, *args, **kwargs)

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: List[LoadPlan]) -> List[LoadPlan]:
        return plans

    def _request(self, item: ReadItem, target: torch.Tensor) -> Request:
        """The box of an item, which is an offset into one of the parts that the metadata has, read into target."""
        offset = item.storage_index.offset or [0] * len(item.lengths)
        name = self._name(item.storage_index.fqn)
        dtype = str(target.dtype).replace("torch.", "")
        return Request(
            name,
            dtype if is_floating(dtype) and is_floating(self.arrays[name].dtype) else None,
            shape=list(self._found[item.storage_index.fqn].size),
            start=[a + b for a, b in zip(offset, item.storage_offsets)],
            extent=list(item.lengths),
            into=target.data_ptr() or None,
            strides=[n * target.element_size() for n in target.stride()],
        )

    def _is_array(self, item: ReadItem) -> bool:
        """It is a box of an array as the library has it: flat shards of Megatron are a whole array there, and no grid of ranges."""
        if item.type == LoadItemType.BYTE_IO:
            return False
        array = self.arrays.get(self._name(item.storage_index.fqn))
        if array is None or array.why is not None or array.dtype is None:
            return self._files is None  # the library says why
        return self._files is None or array.shape == tuple(self._found[item.storage_index.fqn].size)

    def _read_files(self, items: List[ReadItem], plan: LoadPlan, planner: LoadPlanner) -> None:
        """By torch's own reader, which has the step's names."""
        if self._files is None:
            raise Error(errno.ENOTSUP, "it is no tensor, and can be read in a mount alone", f"{self.step}:{items[0].storage_index.fqn}")
        named = [
            dataclasses.replace(i, storage_index=dataclasses.replace(i.storage_index, fqn=self._name(i.storage_index.fqn))) for i in items
        ]
        self._files.read_data(dataclasses.replace(plan, items=named), planner)

    def _own_type(self, item: ReadItem, target: torch.Tensor) -> bool:
        """The library writes into target's memory."""
        found, wanted = self.arrays[self._name(item.storage_index.fqn)].dtype, str(target.dtype).replace("torch.", "")
        return target.device.type == "cpu" and (found == wanted or (is_floating(found) and is_floating(wanted)))

    def _read_tensors(self, items: List[ReadItem], planner: LoadPlanner) -> None:
        targets = [planner.resolve_tensor(item).detach() for item in items]
        into = [
            t if self._own_type(i, t) else torch.empty(t.shape, dtype=torch_type(str(self.arrays[self._name(i.storage_index.fqn)].dtype)))
            for i, t in zip(items, targets)
        ]
        self.arrays._set.read_all([self._request(i, t) for i, t in zip(items, into)], self.at_once)
        for item, target, read in zip(items, targets, into):
            if read is not target:
                target.copy_(read)
            planner.commit_tensor(item, target)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        self._read_tensors([i for i in plan.items if self._is_array(i)], planner)
        others = [i for i in plan.items if not self._is_array(i)]
        if others:
            self._read_files(others, plan, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Union[str, os.PathLike[str]]) -> bool:
        return bool(os.fspath(checkpoint_id))
