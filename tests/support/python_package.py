"""The Python package as pip installs it, for the files that test it: they import these fixtures."""

import os
import shutil
import subprocess
import sys

import pytest

from support.fixtures import SOURCE

mounted_or_not = pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "unmounted"])


@pytest.fixture(scope="module")
def package(ckptfs, tmp_path_factory):
    """The package as pip installs it, imported."""
    source = tmp_path_factory.mktemp("source") / "python"
    target = tmp_path_factory.mktemp("target")
    shutil.copytree(SOURCE / "tools/python", source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", target, source]
    subprocess.run([*map(str, pip)], check=True, timeout=150)
    os.environ["CKPTFS_LIBRARY"] = str(ckptfs.path.parent / "libckptfs.so.1")
    os.environ["CKPTFS_PROGRAM"] = str(ckptfs.path)
    sys.path.insert(0, str(target))
    import ckptfs as module

    assert module.__file__.startswith(str(target)) and (target / "ckptfs/py.typed").exists()
    return module


@pytest.fixture
def where(mounted, mount, store):
    if not mounted:
        mount.umount()
    return mount.path if mounted else store
