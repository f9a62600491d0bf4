"""The command line: wrong use of each verb is one clear line, and help says what is right."""

import os
import re
import subprocess

import pytest
from test_cli import filled  # noqa: F401  pylint: disable=unused-import

pytestmark = pytest.mark.timeout(60)

WRONG = [[], ["nosuchverb"], ["ls", "--nosuch"], ["ls", "-Z", "STORE"], ["ls", "--sort"], ["ls", "--sort", "nosuch", "STORE"], ["ls", "--json=1", "STORE"],
         ["ls", "STORE", "1", "2"], ["ls", "--where", "nosuch = 1", "STORE"], ["ls", "--where", "number", "STORE"], ["ls", "--where", "number = 1 or number = 2", "STORE"],
         ["ls", "--where", "", "STORE"], ["ls", "--where", "name = 'x", "STORE"], ["info", "STORE", "1", "2"], ["cat"], ["cat", "STORE"], ["cat", "--json", "STORE", "1", "f"],
         ["abort"], ["abort", "STORE"], ["abort", "STORE", "1", "2"], ["sessions", "STORE", "x"], ["status", "STORE", "x"], ["doctor", "STORE", "x"], ["umount"],
         ["umount", "a", "b"], ["mount"], ["init"], ["init", "a", "b"], ["init", "--set", "nosuch=1", "a"], ["init", "--set", "marker", "a"], ["help", "nosuchverb"],
         ["rm"], ["rm", "STORE"], ["rm", "STORE", "trash/1"], ["rm", "--now", "STORE", "1000"], ["mv", "STORE"], ["mv", "STORE", "1000"], ["mv", "STORE", "trash/1", "1"],
         ["mv", "STORE", "1", "2", "3"], ["undelete"], ["undelete", "STORE"], ["restore"], ["restore", "STORE"], ["restore", "STORE", "1000"], ["restore", "STORE", "1000@1", "1000@2"], ["restore", "STORE", "1000@1/config.json"], ["pin"], ["pin", "STORE"], ["note"], ["note", "STORE"], ["note", "STORE", "1000"], ["note", "-m", "x", "STORE", "1000", "2000"], ["note", "-m", "x", "STORE", "trash/1"], ["pin", "STORE", "1000/config.json"], ["promote", "STORE"], ["promote", "STORE", "trash/1"], ["preempt", "STORE", "1000"], ["preempt", "--at", "soon", "STORE"], ["preempt", "--at", "5", "--cancel", "STORE"], ["unpin", "STORE"], ["unpin", "STORE", "trash/1"],
         ["save"], ["save", "STORE"], ["save", "STORE", ".", "a", "b"], ["log", "STORE", "1", "2"], ["log", "-n", "x", "STORE"], ["log", "--since", "nosuch", "STORE"], ["copy"], ["copy", "STORE"], ["copy", "STORE", "STORE"], ["copy", "STORE", "a", "b"], ["copy", "--steps", "trash/1", "STORE", "a"], ["copy", "--steps", "1000/config.json", "STORE", "a"], ["copy", "-o", "region=x", "STORE", "a"], ["get"], ["get", "STORE", "1000"], ["get", "STORE", "1000", "a", "b"], ["begin"], ["begin", "STORE"],
         ["commit"], ["commit", "STORE"], ["commit", "--all-quiet", "STORE", "1"], ["trash"], ["trash", "nosuch", "STORE"], ["resume"], ["resume", "STORE"], ["latest", "STORE", "a", "b"], ["latest", "--by", "nosuch", "STORE"],
         ["resolve", "--by", "nosuch", "--run", "STORE"], ["resolve", "STORE"], ["resolve", "--run"],
         ["verify", "--nosuch", "STORE"], ["config", "STORE", "nosuch"], ["config", "STORE", "trash=soon"], ["config", "STORE", "trash", "marker"], ["wait", "STORE", "1", "2"],
         ["wait", "--timeout", "soon", "STORE"], ["wait", "--idle", "--remote", "STORE"], ["wait", "--sealed", "--idle", "STORE"], ["seal", "STORE", "trash/1"], ["seal", "STORE", "1000/config.json"],
         ["cool"], ["cool", "STORE"], ["cool", "STORE", "trash/1"], ["warm", "STORE"], ["warm", "STORE", "1000/config.json"], ["warm", "--only"], ["warm", "--only", "", "STORE", "1000"],
         ["mount", "-o", "target_data_file_size=2GiB", "STORE", "a"], ["gc", "STORE", "1000"], ["gc", "--grace", "soon", "STORE"], ["gc", "--grace", "-1s", "STORE"],
         ["policy"], ["policy", "mend", "STORE"], ["policy", "show", "STORE", "x"], ["policy", "check"], ["policy", "check", "STORE", "x", "y"], ["policy", "set", "STORE"],
         ["policy", "set", "STORE", "a", "b"], ["policy", "explain", "STORE"], ["policy", "explain", "STORE", "9"], ["policy", "explain", "STORE", "9..1"], ["policy", "explain", "STORE", "0..99999"],
         ["policy", "explain", "--step-time", "soon", "STORE", "0..9"], ["policy", "explain", "--preempt-at", "-1", "STORE", "0..9"], ["retain", "STORE", "1000"], ["retain", "--nosuch", "STORE"],
         ["should-save"], ["should-save", "STORE"], ["should-save", "STORE", "soon"], ["should-save", "STORE", "-1"], ["should-save", "STORE", "99999999999999999999"], ["should-save", "STORE", "1", "2"],
         ["remote"], ["remote", "mend", "STORE"], ["remote", "show", "STORE", "x"], ["remote", "sync", "--timeout", "soon", "STORE"], ["remote", "sync", "--yes", "STORE"], ["remote", "show", "--timeout", "1s", "STORE"], ["remote", "drop", "STORE"], ["remote", "drop", "STORE", "trash/1"],
         ["remote", "add"], ["remote", "add", "STORE"], ["remote", "add", "STORE", "/tmp"], ["remote", "add", "STORE", "gs://bucket/run"], ["remote", "add", "s3://bucket/a", "s3://bucket/b"], ["remote", "add", "STORE", "s3://bucket/run", "x"],
         ["remote", "add", "--yes", "STORE", "s3://bucket/run"], ["remote", "add", "-o", "nosuch=1", "STORE", "s3://bucket/run"], ["remote", "add", "-o", "work_dir=/tmp/x", "STORE", "s3://bucket/run"], ["remote", "remove", "STORE", "x"], ["remote", "remove", "--timeout", "1s", "STORE"],
         ["index"], ["index", "STORE"], ["index", "check", "STORE", "1000"], ["diff"], ["arrays"], ["arrays", "STORE"], ["arrays", "STORE", "1000", "a", "b"], ["check"], ["check", "STORE"], ["check", "STORE", "1000", "2000"], ["export"], ["export", "STORE", "1000", "x"], ["export", "STORE", "1000", "-f", "npz"], ["export", "STORE", "1000", "x", "-f", "pickle"], ["export", "STORE", "1000", "x", "-f", "npz", "--dtype", "int8"], ["export", "STORE", "1000", "x", "-f", "npz", "--shard-bytes", "0"], ["derive"], ["derive", "STORE", "1000"], ["derive", "STORE", "1000", "x", "-f", "pickle"], ["derive", "STORE", "1000", "x", "--merge"], ["rm", "--arrays", "", "STORE", "1000"], ["rm", "--arrays", "x", "--now", "STORE", "1000"], ["convert"], ["convert", "STORE", "1000", "x"], ["convert", "STORE", "1000", "--map", "/dev/null"], ["convert", "STORE", "1000", "x", "--map", "/dev/null", "-f", "pickle"], ["convert", "STORE", "1000", "x", "--exec", "cat", "--plugin", "a.so"], ["convert", "STORE", "1000", "x", "--exec", "cat", "--timeout", "soon"], ["convert", "STORE", "1000", "x", "--map", "/dev/null", "--timeout", "1s"], ["convert", "STORE", "1000", "--exec", "cat"], ["diff", "STORE", "1000"], ["diff", "STORE", "1", "2", "3"],
         ["diff", "--arrays=1", "STORE", "1000", "2000"], ["du", "--nosuch"], ["du", "STORE", "1000/config.json"], ["bench"], ["bench", "a", "b"], ["help", "a", "b"],
         ["mount", "-o", "colour=3", "STORE", "a"], ["mount", "-o", "durability=far", "STORE", "a"], ["mount", "-o", "ro=1", "STORE", "a"], ["ls", "http://x/y"],
         ["resolve", "--run", "nowhere"], ["resolve", "--load-full-state-path", "STORE", "--run", "STORE/a"]]
REFUSED = [["ls", "nowhere"], ["ls", "/"], ["ls", "STORE", "nosuch"], ["ls", "STORE", "1000/nosuch"], ["ls", "STORE", "trash/1000"], ["info", "STORE", "1000/a/b"],
           ["cat", "STORE", "1000", "nosuch"], ["cat", "STORE", "1000", ".arrays/nosuch.npy"], ["arrays", "STORE", "nosuch"], ["check", "STORE", "nosuch"], ["check", "STORE", "1000", "--against", "nosuch"], ["export", "STORE", "nosuch", "x", "-f", "npz"], ["export", "STORE", "1000", "x", "-f", "npz", "--only", "nosuch"], ["export", "STORE", "1000", "/", "-f", "npz"], ["derive", "STORE", "nosuch", "x"], ["derive", "STORE", "1000", "1000"], ["derive", "STORE", "1000", "x", "--only", "nosuch"], ["derive", "STORE", "1000", "x", "--merge", "nosuch"], ["rm", "--arrays", "nosuch", "STORE", "1000"], ["rm", "--arrays", "x", "STORE", "nosuch"], ["convert", "STORE", "1000", "x", "--map", "nosuch"], ["convert", "STORE", "1000", "x", "--map", "/dev/null"], ["convert", "STORE", "1000", "x", "--map", "/"], ["convert", "STORE", "nosuch", "x", "--exec", "cat"], ["convert", "STORE", "1000", "1000", "--exec", "cat"], ["cat", "STORE", "1000", "params"], ["verify", "STORE", "nosuch"], ["abort", "STORE", "nosuch"],
           ["umount", "STORE"], ["umount", "/"], ["ls", "s3://bucket/run"], ["ls", "gs://bucket/run"], ["mount", "s3://bucket/run", "x"], ["init", "STORE"],
           ["info", "STORE", "3000"], ["ls", "/dev/null"], ["rm", "STORE", "nosuch"], ["rm", "STORE", "3000"], ["mv", "STORE", "nosuch", "x"], ["mv", "STORE", "1000", "2000"],
           ["mv", "STORE", "1000", "a/b"], ["undelete", "STORE", "1000"], ["restore", "STORE", "1000@9"], ["restore", "STORE", "nosuch@1"], ["cat", "STORE", "1000@9", "x"], ["rm", "STORE", "1000@1"], ["pin", "STORE", "nosuch"], ["note", "-m", "nosuch", "STORE", "1000"], ["note", "-m", "/dev/null", "STORE", "1000"], ["promote", "STORE", "nosuch"], ["unpin", "STORE", "3000"], ["save", "STORE", "nosuch"], ["get", "STORE", "nosuch", "x"], ["copy", "nowhere", "x"], ["copy", "STORE", "nosuch/x"], ["copy", "--steps", "nosuch", "STORE", "x"],
           ["begin", "STORE", "1000"], ["commit", "STORE", "nosuch"], ["commit", "STORE", "nosuch", "3000"], ["resume", "STORE", "nosuch"], ["latest", "STORE", "nosuch"], ["config", "nowhere"], ["wait", "--remote", "STORE"],
           ["wait", "--timeout", "0", "STORE", "nosuch"], ["diff", "STORE", "1000", "nosuch"], ["diff", "STORE", "1000", "trash/1"], ["du", "STORE", "nosuch"], ["bench", "nosuch"],
           ["cool", "STORE", "nosuch"], ["warm", "STORE", "1000", "nosuch"], ["cool", "STORE", "3000"], ["policy", "show", "nowhere"], ["policy", "check", "nosuch"], ["policy", "set", "STORE", "nosuch"],
           ["remote", "show", "STORE"], ["remote", "sync", "STORE"], ["remote", "drop", "--yes", "STORE", "1000"], ["remote", "drop", "--yes", "STORE", "nosuch"], ["remote", "show", "nowhere"], ["remote", "add", "nowhere", "s3://bucket/run"], ["remote", "remove", "--yes", "STORE"], ["remote", "remove", "--yes", "nowhere"],
           ["policy", "set", "STORE", "/"], ["policy", "set", "STORE", "/dev/null"], ["policy", "explain", "STORE", "0..9", "nosuch"], ["retain", "nowhere"]]


@pytest.mark.parametrize("status, words", [(2, w) for w in WRONG] + [(1, w) for w in REFUSED], ids=lambda x: " ".join(x) if isinstance(x, list) else str(x))
def test_wrong_use_is_one_clear_line(filled, store, ckptfs, scratch, status, words):
    env = dict(os.environ, CKPTFS_STORE="")
    done = ckptfs(*[store if w == "STORE" else w for w in words], check=False, cwd=scratch, env=env, stdin=subprocess.DEVNULL)
    lines = done.stderr.splitlines()
    assert done.stdout == ""
    assert lines and re.match(r"ckptfs: \S", lines[0]), done.stderr
    assert len(lines) <= 2 and all(re.match(r"hint: \S", line) for line in lines[1:]), done.stderr
    assert done.returncode == (status if words[:2] != ["info", "STORE"] or words[2] != "1000/a/b" else 2), done.stderr
    assert "(null)" not in done.stderr


def test_every_verb_is_used_wrongly_above(ckptfs):
    assert {words[0] for words in WRONG if words} >= set(ckptfs("help", "--words").stdout.split())


@pytest.mark.parametrize("wrong, meant", [(["lss"], "ls"), (["unmount"], "umount"), (["ls", "--revers"], None), (["ls", "--stagd"], "--staged"),
                                          (["mount", "-o", "markr=x", "a", "b"], "marker"), (["ls", "--sort", "byts"], "bytes")], ids=lambda x: str(x))
def test_what_was_meant_is_offered(ckptfs, store, wrong, meant):
    ckptfs("init", store)
    done = ckptfs(*wrong, *([store] if wrong[0] == "ls" else []), check=False)
    assert done.returncode == (2 if meant else 0)
    assert meant is None or meant in done.stderr.splitlines()[1]


def test_every_verb_has_help_with_purpose_usage_options_and_examples(ckptfs):
    text = ckptfs("--help").stdout
    verbs = re.findall(r"^  ([\w-]+)  +\S", text, re.M)
    assert {"init", "mount", "umount", "ls", "info", "cat", "verify", "status", "doctor", "sessions", "abort", "bench", "latest"} <= set(verbs)
    for verb in set(verbs) - {"help"}:
        text = ckptfs(verb, "--help").stdout
        assert text.startswith(f"Usage: ckptfs {verb}") and text.count(f"\n  ckptfs {verb}") >= 2, text
        assert ckptfs("help", verb).stdout == text
        assert ("--json" in text) == (verb != "cat"), "what is offered is to be had"
        assert all(len(line) <= 80 for line in text.splitlines())


def test_help_prints_what_man_pages_and_shells_need(ckptfs):
    part = ckptfs("help", "--man", "umount").stdout
    assert part.startswith(".SS ckptfs umount [OPTION...] DIR\n") and "\\fB\\-n\\fR, \\fB\\-\\-now\\fR\n" in part
    assert ckptfs("help", "--man").stdout.count(".TP\n") == 5
    assert ckptfs("help", "--words").stdout.split() == re.findall(r"^  ([\w-]+)  +\S", ckptfs("--help").stdout, re.M)
    assert {"-n", "--now", "--json"} <= set(ckptfs("help", "--words", "umount").stdout.split())


def test_version_says_what_was_built(ckptfs):
    text = ckptfs("--version").stdout
    for pattern in (r"^ckptfs \d+\.\d+", r"^format \d+$", r"^libfuse 3\.\d+", r"^passthrough (yes|no)$"):
        assert re.search(pattern, text, re.M), text
