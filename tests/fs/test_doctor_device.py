"""doctor's lines about GPUs, with a libckptfs_cuda that has one."""

import json
import os
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.timeout(60)

LIBRARY = """
#include <string.h>
int ckpt_cuda_describe(char *text) { strcpy(text, "a GPU of the tests"); return 0; }
#ifdef GPUDIRECT
int ckpt_cuda_describe_gpudirect(char *text) { strcpy(text, GPUDIRECT); return 0; }
#endif
"""


@pytest.mark.parametrize(("defined", "told"), [
    ('-DGPUDIRECT="driver nvidia-fs, version: 2.17"', "driver nvidia-fs, version: 2.17"),
    ('-DGPUDIRECT="not used, loads go through pinned memory: the driver nvidia-fs is not loaded"', "not used, loads go through pinned memory: the driver nvidia-fs is not loaded"),
    ("-DNONE", "libckptfs_cuda.so.1 is of another version")], ids=["there", "not-there", "older"])
def test_gpudirect_is_told_in_one_line(ckptfs, tmp_path, defined, told):
    (tmp_path / "a.c").write_text(LIBRARY)
    subprocess.run([shutil.which("cc"), "-shared", "-fPIC", defined, "-o", tmp_path / "libckptfs_cuda.so.1", tmp_path / "a.c"], check=True, timeout=50)
    done = subprocess.run([ckptfs.path, "doctor", "--json"], env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}, capture_output=True, text=True, timeout=50)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["device"]["detail"] == "a GPU of the tests"
    assert checks["GPUDirect"]["detail"] == told and checks["GPUDirect"]["ok"]
