"""ckptfs-cuda-bench on the host device: it measures, compares every byte, leaves nothing; and a machine without a GPU is told in one line."""

import os
import subprocess

import pytest

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def bench(ckptfs):
    def run(*arguments):
        return subprocess.run([ckptfs.path.parent / "ckptfs-cuda-bench", *map(str, arguments)], capture_output=True, text=True, timeout=100)

    return run


@pytest.mark.parametrize("options", [(), ("--pool", "64KiB", "--buffered"), ("--format", "dcp"), ("--format", "raw", "--arrays", 1000)], ids=["fits", "streams", "dcp", "small"])
def test_every_byte_is_compared_and_nothing_is_left(bench, tmp_path, options):
    done = bench("--device", "host:1GiB", "--bytes", "2MiB", "--arrays", 7, "--runs", 2, *options, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for row in ("copy to pinned memory", "disk, written", "save: blocked", "save: durable", "load ", "load: page cache", "load: O_DIRECT", "blocked / copy", "save rate / disk"):
        assert any(line.startswith(row) for line in done.stdout.splitlines()), row
    arrays = 1000 if 1000 in options else 7
    assert f"verified: {(2 << 20) // arrays // 8 * 8 * arrays} bytes, 6 times" in done.stdout
    assert os.listdir(tmp_path) == []


def test_what_is_wrong_is_said_in_one_line(bench, tmp_path):
    assert bench("--bytes", "many", tmp_path).returncode == 2 and bench().returncode == 2
    for arguments in (("--device", "host", "--format", "tar", "--bytes", "1MiB", tmp_path), ("--device", "host", "--bytes", "1MiB", tmp_path / "none"), ("--device", "tpu", tmp_path)):
        done = bench(*arguments)
        assert done.returncode == 1 and done.stderr.startswith("ckptfs-cuda-bench: ") and done.stderr.count("\n") == 1
    if not os.path.exists("/dev/nvidiactl"):
        done = bench("--bytes", "1MiB", tmp_path)
        assert done.returncode == 1 and done.stderr.startswith("ckptfs-cuda-bench: cuda: ") and done.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == []
