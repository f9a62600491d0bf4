"""The arrays of a step, of whatever format its files have, through the mount: each is read when it is used, and only the part that is."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple, Union

from ._library import Error

if TYPE_CHECKING:
    import numpy as np


class Array:
    """One array; nothing is read until it is indexed or converted."""

    def __init__(self, path: Path, row: Dict[str, Any]) -> None:
        self._path = path
        self._row = row

    @property
    def name(self) -> str:
        return str(self._row["name"])

    @property
    def tree(self) -> str:
        """The file, or the directory, that says what it is."""
        return str(self._row["tree"])

    @property
    def shape(self) -> Tuple[int, ...]:
        return tuple(self._row["shape"])

    @property
    def dtype(self) -> Optional[str]:
        """As NumPy or ml_dtypes name it; None: it is not known."""
        return self._row["dtype"]

    @property
    def nbytes(self) -> int:
        return int(self._row["bytes"])

    @property
    def why(self) -> Optional[str]:
        """Why it cannot be read; None: it can."""
        return self._row["why"]

    def _mapped(self) -> np.ndarray:
        import numpy as np

        if self.why:
            raise Error(errno.ENOTSUP, self.why, self.name)
        if not self.nbytes:
            return np.load(self._path)
        mapped = np.load(self._path, mmap_mode="r")
        if mapped.dtype.kind != "V":
            return mapped
        try:
            import ml_dtypes
        except ImportError:
            raise Error(errno.ENOTSUP, f"its type is {self.dtype}: install ml_dtypes", self.name) from None
        return mapped.view(np.dtype(getattr(ml_dtypes, str(self.dtype))))

    def __getitem__(self, at: Any) -> np.ndarray:
        import numpy as np

        return np.array(self._mapped()[at])

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        import numpy as np

        if copy is False:
            raise ValueError("an array of a step is read by copying it")
        return np.array(self._mapped(), dtype=dtype)

    def numpy(self) -> np.ndarray:
        return self[...]

    def torch(self) -> Any:
        """A torch tensor, of bfloat16 and the 8-bit floats too."""
        import numpy as np
        import torch

        whole = self.numpy()
        kind = getattr(torch, str(self.dtype))
        bits = np.dtype(f"u{whole.dtype.itemsize}") if whole.dtype.kind == "V" or self.dtype not in np.sctypeDict else None
        return torch.from_numpy(whole if bits is None else whole.view(bits)).view(kind)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("it has no dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<ckptfs.Array {self.tree}:{self.name} {self.dtype} {list(self.shape)}>"


class Arrays(Mapping):
    """The arrays of a step by name; by "TREE:NAME" where a name is not unique."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with open(path / ".arrays/index.json", encoding="utf-8") as f:
            self._rows: List[Dict[str, Any]] = json.load(f)
        count: Dict[str, int] = {}
        for row in self._rows:
            count[row["name"]] = count.get(row["name"], 0) + 1
        self._full = {f"{row['tree']}:{row['name']}": row for row in self._rows}
        self._short = {row["name"]: row for row in self._rows if count[row["name"]] == 1}

    def __getitem__(self, name: str) -> Array:
        row = self._short.get(name) or self._full.get(name)
        if row is None:
            raise KeyError(name)
        return Array(self._path / ".arrays" / file_of(row), row)

    def __iter__(self) -> Iterator[str]:
        return (row["name"] if row["name"] in self._short else f"{row['tree']}:{row['name']}" for row in self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def escaped(component: str) -> str:
    """A component of a name as .arrays has it."""
    import hashlib

    raw = component.encode("utf-8", "surrogateescape")
    if not raw:
        return "%00"
    if raw in (b".", b".."):
        return "%2E" * len(raw)
    plain = "".join(chr(b) if chr(b).isascii() and (chr(b).isalnum() or chr(b) in "._-") else f"%{b:02X}" for b in raw)
    return plain if len(plain) + len(".npy") <= 255 else "%%" + hashlib.sha256(raw).hexdigest()


def file_of(row: Dict[str, Any]) -> str:
    """Below .arrays: TREE/NAME.npy."""
    tree = [] if row["tree"] == "." else row["tree"].split("/")
    return "/".join([escaped(x) for x in (*tree, *row["name"].split("/"))]) + ".npy"


def arrays(step: Union[str, os.PathLike[str]]) -> Arrays:
    """The arrays of a step: one of `ckptfs.latest()` and the like, or its path in a mount."""
    return Arrays(Path(os.fspath(step)))


def checks(step: Union[str, os.PathLike[str]], read_data: bool = False) -> Dict[str, Any]:
    """What `ckptfs check --json` says of a step: {"healthy", "arrays", "findings": [...], ...}."""
    path = os.fspath(step)
    program = os.environ.get("CKPTFS_PROGRAM") or shutil.which("ckptfs")
    if program is None:
        raise Error(errno.ENOENT, "the program is in none of PATH's directories; CKPTFS_PROGRAM may say where it is", "ckptfs")
    done = subprocess.run([program, "check", path, "--json", *(["--read-data"] if read_data else [])], capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout or "{}")
    if "findings" not in answer:
        raise Error(errno.EIO, answer.get("error") or done.stderr.strip() or "it said nothing", path)
    return answer


def findings(step: Union[str, os.PathLike[str]], read_data: bool = True) -> List[Dict[str, Any]]:
    """The findings of checks(), elements read."""
    return checks(step, read_data)["findings"]
