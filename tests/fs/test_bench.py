"""ckptfs bench: its figures come out whole, and it leaves nothing behind. What they are is not judged here."""

import json
import os
import signal
import subprocess
import time

import pytest

FULL = os.environ.get("CKPT_TEST_FULL")
LIMIT = 300 if FULL else 100  # seconds for all figures

pytestmark = pytest.mark.timeout(LIMIT + 20)

FIELDS = {"name", "ratio", "native_ratio", "wall_s", "plain_wall_s", "cpu_ratio", "pairs", "target", "met", "value", "measure"}
TINY = ["--quick", "--pairs", "1", "--work-bytes", "1MiB", "--files", "100"]


def start(ckptfs, scratch, *options):
    return subprocess.Popen([ckptfs.path, "bench", *TINY, *options, scratch], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def figures(ckptfs, scratch, *options):
    process = start(ckptfs, scratch, "--json", *options)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    assert os.listdir(scratch) == [], "it left something behind"
    return {figure["name"]: figure for figure in json.loads(out)}


def test_every_figure_that_needs_no_root_is_measured(ckptfs, scratch):
    # Ten thousand steps and a hundred thousand inodes are made only where there is time, and all figures measured.
    some = {"save-1", "save-sealing", "seal", "cold-read", "derive", "files-fsync", "restore-warm", "walk-warm"}
    options, large = ([], {"save-2", "list", "mount-warm", "inodes", "mmap-cold"}) if FULL else (["--only", f"@({'|'.join(some)})"], set())
    found = figures(ckptfs, scratch, *options)
    assert some | large <= set(found)
    for figure in found.values():
        assert FIELDS <= set(figure)
        assert not figure["error"], figure
        if figure["skipped"]:
            continue
        assert figure["value"] is not None
        if figure["measure"] == "ratio":
            assert figure["pairs"] == 1
            assert min(figure[key] for key in ("ratio", "native_ratio", "wall_s", "plain_wall_s", "cpu_ratio")) > 0
    assert not large or found["inodes"]["value"] == 0


def test_only_takes_what_matches(ckptfs, scratch):
    assert set(figures(ckptfs, scratch, "--only", "walk-*")) == {"walk-warm", "walk-cold"}


def test_only_that_matches_nothing_is_wrong_usage(ckptfs, scratch):
    process = start(ckptfs, scratch, "--only", "save-1,save-2")
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 2 and out == "" and "no figure is called 'save-1,save-2'" in err and "hint: " in err
    assert os.listdir(scratch) == []


def test_chunks_in_the_index_are_measured(ckptfs, scratch):
    found = figures(ckptfs, scratch, "--only", "@(index|lookup)")
    assert found.keys() == {"index", "lookup"}
    assert all(figure["value"] > 0 and not figure["error"] for figure in found.values()), found


def test_it_measures_without_passthrough_too(ckptfs, scratch):
    found = figures(ckptfs, scratch, "--only", "save-1", "--mount-options", "no_passthrough")
    assert found["save-1"]["ratio"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_leaves_nothing(ckptfs, scratch, number):
    process = start(ckptfs, scratch, "--pairs", "1000", "--only", "save-1")
    try:
        deadline = time.monotonic() + 20
        while not any(os.path.ismount(top / "mount") for top in scratch.iterdir()):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert os.listdir(scratch) == []


def test_wrong_usage_is_refused(ckptfs, scratch):
    for options in (["--pairs", "0"], ["--files", "1"], ["--work-bytes", "x"]):
        process = start(ckptfs, scratch, *options)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 2
        assert options[0] in err
