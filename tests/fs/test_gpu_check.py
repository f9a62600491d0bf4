"""tools/gpu-check on a machine without a GPU: one line says so, the host device is tested and measured, the table is printed."""

import os
import re
import subprocess

import pytest

from support.fixtures import SLOW, SOURCE

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(SLOW > 1, reason="it measures")]


def check(*arguments):
    return subprocess.run([SOURCE / "tools/gpu-check", *map(str, arguments)], capture_output=True, text=True, timeout=390)


def test_a_machine_without_a_gpu_gets_the_table_of_the_host_device(ckptfs, tmp_path):
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU")
    done = check("--build", ckptfs.path.parent, tmp_path, "2MiB")
    assert (done.returncode, done.stderr) == (3, "")
    lines = done.stdout.splitlines()
    assert sum("no GPU was found (" in line for line in lines) == 1
    for suite in ("device", "save", "load", "direct", "cufile"):
        assert any(re.match(rf"test_cuda_{suite}: 100%: Checks: \d+, Failures: 0, Errors: 0", line) for line in lines)
    table = lines[lines.index("--- the table to send back ---") :]
    assert len([line for line in table if re.match(r"\| [^|]+( \| \d+\.\d\d){3} \|$", line)]) == 6
    assert any(line.startswith("device host:1GiB, state 2MiB, disk ") for line in table)
    assert os.listdir(tmp_path) == []


def test_a_failure_is_no_missing_gpu(ckptfs, tmp_path):
    assert check().returncode == 2 and check("--build", tmp_path).returncode == 2
    build = tmp_path / "build"
    build.mkdir()
    bench = build / "ckptfs-cuda-bench"
    bench.write_text("#!/bin/sh\necho 'ckptfs-cuda-bench: cuda: 4 buffers of pinned memory: out of memory' >&2\nexit 1\n")
    bench.chmod(0o755)
    done = check("--build", build, tmp_path)
    assert (done.returncode, done.stderr) == (1, "gpu-check: ckptfs-cuda-bench: cuda: 4 buffers of pinned memory: out of memory\n")
