"""Daemons of which some library calls behave otherwise."""

import subprocess

import pytest

from support.fixtures import SLOW, SOURCE


def preload(world, name, **environment):
    """Compiles tests/fs/clients/NAME.c; returns the words before a command that is to run with it."""
    if SLOW > 1:
        pytest.skip("sanitizers want to be loaded first")
    library = world.scratch / f"{name}.so"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library,
                    SOURCE / f"tests/fs/clients/{name}.c", "-ldl"], check=True)
    return ["env", f"LD_PRELOAD={library}", *(f"{key}={value}" for key, value in environment.items())]
