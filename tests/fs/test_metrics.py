"""`.ckptfs/metrics`: the text form of Prometheus, and what it counts."""

import math
import os
import re
import time

import pytest

from support import trees
from support.fixtures import all_modes
from support.mounting import Mount

pytestmark = pytest.mark.timeout(60)

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)?\}})? ([^ \n]+)")


def parse(text):
    """{(name, labels): value}; fails on whatever the format does not allow, or promtool would find fault with."""
    assert text.endswith("\n") and "\n\n" not in text
    types, found, last = {}, {}, None
    for line in text.split("\n")[:-1]:
        if match := re.fullmatch(rf"# HELP ({NAME}) (\S.*)", line):
            assert match[1] not in types, "each name once, in one group"
            last, types[match[1]] = match[1], None
        elif match := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge)", line):
            assert match[1] == last and types[last] is None, "TYPE comes behind HELP, before samples"
            types[last] = match[2]
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels = match[1], tuple(sorted(re.findall(LABEL, match[2] or "")))
            assert name == last and types[name], "samples stand below their TYPE"
            assert (name, labels) not in found and name.startswith("ckptfs_")
            assert (types[name] == "counter") == name.endswith("_total")
            found[name, labels] = float(match[3])
            assert math.isfinite(found[name, labels]) and found[name, labels] >= 0
    assert set(types) == {name for name, _ in found}
    return found


def read(mount):
    found = parse((mount / ".ckptfs/metrics").read_text(encoding="utf-8"))
    plain = {name: value for (name, labels), value in found.items() if not labels}
    plain |= {f"{name}.{labels[0].split(chr(34))[1]}": value for (name, labels), value in found.items() if len(labels) == 1}
    return plain, {name: dict(label.split("=", 1) for label in labels) for name, labels in found if len(labels) > 1}


@all_modes
def test_metrics_count_what_there_is(mount, store, stage, commit, ckptfs, mode):
    began = time.time()
    assert {"ckptfs_steps": 0, "ckptfs_commits_total": 0, "ckptfs_last_commit_timestamp_seconds": 0, "ckptfs_errors_total": 0}.items() <= read(mount)[0].items()
    sizes = {n: sum(map(len, stage(n).values())) for n in ("1", "2", "3", "4")}
    for n in ("1", "2", "3"):
        commit(mount / n)
    with pytest.raises(OSError):
        trees.write(mount / "4/.finalize", b"{not json")
    ckptfs("rm", store, "1")
    ckptfs("wait", "--idle", store)
    with open(mount / "4/open", "wb") as f:
        f.write(b"x" * 10)
        f.flush()
        now, info = read(mount)
    assert (now["ckptfs_steps"], now["ckptfs_step_bytes"]) == (2, sizes["2"] + sizes["3"])
    assert (now["ckptfs_trash_steps"], now["ckptfs_trash_bytes"]) == (1, sizes["1"])
    assert (now["ckptfs_sessions.staged"], now["ckptfs_sessions.committing"], now["ckptfs_sessions.left"]) == (1, 0, 0)
    assert now["ckptfs_session_bytes"] == sizes["4"] + 10 and now["ckptfs_open_writers"] == 1
    assert now["ckptfs_commits_total"] == 3 and now["ckptfs_errors_total"] == len(mount.errors()) == 1
    assert 0 < now["ckptfs_last_commit_seconds"] <= now["ckptfs_commit_seconds_total"] < 60
    assert began - 1 < now["ckptfs_start_time_seconds"] <= now["ckptfs_last_commit_timestamp_seconds"] < time.time() + 1
    assert now["ckptfs_passthrough"] == (mode != "daemon") and now["ckptfs_io_uring"] == (mode == "uring")
    assert now["ckptfs_memory_bytes"] > 1 << 20 and now["ckptfs_index_queue"] == now["ckptfs_removal_queue"] == 0
    assert info["ckptfs_mount_info"]["store"] == f'"{store}"' and re.fullmatch(r'"\d+\.\d+\.\d+"', info["ckptfs_build_info"]["version"])
    mount.remount()
    now = read(mount)[0]
    assert (now["ckptfs_steps"], now["ckptfs_commits_total"], now["ckptfs_errors_total"]) == (2, 0, 0)
    assert (now["ckptfs_sessions.staged"], now["ckptfs_sessions.left"]) == (1, 0), "an unfinished step keeps its name"


def test_sessions_without_a_name_of_their_own_are_counted_as_left(mount, stage, commit):
    stage("1")
    commit(mount / "1")
    trees.write(mount / "1/params/layer_0/w0.bin", b"rewritten")
    mount.kill9()
    mount.start()
    now = read(mount)[0]
    assert (now["ckptfs_steps"], now["ckptfs_sessions.staged"], now["ckptfs_sessions.left"]) == (1, 0, 1)
    assert now["ckptfs_session_bytes"] > 0


@pytest.mark.parametrize("options", [["open_writers=100ms"]])
def test_failed_commits_are_counted(mount, stage, commit):
    stage("1")
    with open(mount / "1/open", "wb"), pytest.raises(OSError):
        commit(mount / "1")
    now = read(mount)[0]
    assert now["ckptfs_commits_total"] == 0 and now["ckptfs_commits_failed_total"] == 1 == now["ckptfs_errors_total"]


def test_names_that_would_break_the_format_are_escaped(world, scratch):
    (scratch / 'a "store"\\').mkdir()
    m = Mount.new(world, scratch / 'a "store"\\')
    assert 'a \\"store\\"\\\\' in (m / ".ckptfs/metrics").read_text()
    assert read(m)[1]["ckptfs_mount_info"]["store"].endswith('a \\"store\\"\\\\"')
    assert "metrics" in os.listdir(m / ".ckptfs")
