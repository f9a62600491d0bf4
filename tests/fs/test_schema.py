"""Every verb's --json, and .ckptfs/status.json, against schemas.json."""

import json
import subprocess

import numpy
import pytest

from support import trees
from support.schema import DEFINITIONS, mismatch

pytestmark = pytest.mark.timeout(120)

BENCH = ["--quick", "--pairs", "1", "--work-bytes", "1MiB", "--files", "100", "--only", "walk-warm"]
WITHOUT_JSON = {"cat", "help"}

NEEDS_MOUNT = "ok, mounted"  # a failure at rest

# (words, schema, exit status or None for any), run one after the other; what is in STORE comes from `filled`.
CASES = [
    (["init", "NEW"], "store", 0), (["init", "NEW"], "failure", 1),
    (["ls", "STORE"], "steps", 0), (["ls", "STORE", "--all"], "steps", 0), (["ls", "STORE", "1000"], "files", 0),
    (["info", "STORE"], "store", 0), (["info", "STORE", "2000"], "step in full", 0), (["info", "STORE", "9"], "failure", 1),
    (["latest", "STORE"], "latest", 0), (["latest", "NEW"], "latest", 1), (["latest", "STORE", "--healthy"], "latest", 0), (["resolve", "--run", "STORE", "--healthy"], "resolve", 0),
    (["log", "STORE"], "log", 0), (["log", "STORE", "2000", "-n", "1"], "log", 0), (["log", "STORE", "--all"], "log", 0), (["log", "STORE", "9"], "failure", 1), (["log", "STORE", "1000", "2000"], "failure", 2),
    (["resolve", "--run", "STORE"], "resolve", 0), (["resolve", "--run", "NEW"], "resolve", 1), (["resolve", "--run", "NEW", "--load-parameters-path", "OUT"], "resolve", 0),
    (["resolve", "--run", "NEW", "--load-full-state-path", "GOT"], "failure", 2), (["resolve", "--run", "NEW", "--load-full-state-path", "a", "--load-parameters-path", "b"], "failure", 2),
    (["verify", "STORE"], "verify", 0), (["verify", "STORE", "1000", "--read-data"], "verify", 0),
    (["seal", "STORE"], "done", 0), (["seal", "STORE", "9"], "failure", 1),
    (["cool", "STORE", "1000"], "done", 0), (["ls", "STORE"], "steps", 0), (["info", "STORE", "1000"], "step in full", 0), (["du", "STORE"], "du", 0),
    (["verify", "STORE"], "verify", 0), (["warm", "STORE", "1000", "--only", "*w1*"], "done", 0), (["warm", "STORE", "1000"], "done", 0), (["warm", "STORE", "9"], "failure", 1),
    (["cool", "STORE", "9"], "failure", 1), (["cool", "STORE"], "failure", 2),
    (["diff", "STORE", "1000", "2000"], "diff", 1), (["diff", "STORE", "1000", "1000"], "diff", 0), (["diff", "--arrays", "STORE", "1000", "2000"], "diff", 1), (["diff", "STORE", "1000", "9"], "failure", 1),
    (["arrays", "STORE", "1000"], "arrays of a step", 0), (["arrays", "STORE", "1000", "--stats"], "arrays of a step", 0), (["arrays", "STORE", "9"], "failure", 1),
    (["check", "STORE", "1000"], "check", 0), (["check", "STORE", "1000", "--read-data"], "check", 0), (["check", "STORE", "9"], "failure", 1),
    (["export", "STORE", "1000", "EXPORT", "-f", "npz"], "exported", 0), (["export", "STORE", "1000", "EXPORT", "-f", "npz"], "failure", 1), (["export", "STORE", "1000", "EXPORT"], "failure", 2),
    (["gc", "STORE", "--dry-run"], "gc", 0), (["gc", "STORE", "--grace", "0"], "gc", 0), (["gc", "STORE", "9"], "failure", 2),
    (["remote", "show", "STORE"], "failure", 1), (["remote", "sync", "STORE"], "failure", 1), (["remote", "drop", "STORE", "1000", "--yes"], "failure", 1), (["remote", "mend", "STORE"], "failure", 2),
    (["index", "check", "STORE"], "index", 0), (["index", "rebuild", "STORE"], "index", 0), (["index", "mend", "STORE"], "failure", 2),
    (["du", "STORE"], "du", 0), (["du", "STORE", "1000"], "du", 0), (["du", "STORE", "9"], "failure", 1),
    (["sessions", "STORE"], "sessions", 0),
    (["promote", "STORE", "2000"], "ok", 0), (["promote", "STORE", "9"], "failure", 1),
    (["derive", "STORE", "1000", "derived"], "derived", 0), (["derive", "STORE", "1000", "merged", "--merge", "derived"], "derived", 0), (["rm", "STORE", "merged"], "ok", 0), (["derive", "STORE", "1000", "derived"], "failure", 1), (["rm", "--arrays", "nosuch", "STORE", "derived"], "failure", 1), (["rm", "STORE", "derived"], "ok", 0), (["derive", "STORE", "1000"], "failure", 2),
    (["convert", "STORE", "1000", "converted", "--map", "RULES"], "exported", 0), (["convert", "STORE", "1000", "converted", "--map", "RULES"], "failure", 1), (["rm", "STORE", "converted"], "ok", 0), (["convert", "STORE", "1000", "by", "--exec", "cat"], "exported", 0), (["rm", "STORE", "by"], "ok", 0), (["convert", "STORE", "1000", "x", "--exec", "false"], "failure", 1), (["convert", "STORE", "1000", "x", "--plugin", "POLICY"], "failure", 1), (["convert", "STORE", "1000", "x", "--map", "POLICY"], "failure", 1), (["convert", "STORE", "1000", "x"], "failure", 2),
    (["save", "STORE", "OUT", "4000"], "save", 0), (["get", "STORE", "4000", "GOT"], "save", 0), (["get", "STORE", "4000", "GOT"], "failure", 1),
    (["copy", "--dry-run", "STORE", "COPY"], "copied", 0), (["copy", "STORE", "COPY"], "copied", 0), (["copy", "--steps", "9", "STORE", "COPY"], "failure", 1), (["copy", "STORE", "STORE"], "failure", 2),
    (["note", "STORE", "1000", "-m", "META"], "ok", 0), (["note", "STORE", "9", "-m", "META"], "failure", 1), (["note", "STORE", "1000"], "failure", 2),
    (["pin", "STORE", "1000"], "ok", 0), (["rm", "STORE", "1000"], "failure", 1), (["unpin", "STORE", "1000"], "ok", 0),
    (["mv", "STORE", "1000", "1001"], "ok", 0), (["rm", "STORE", "1001"], "ok", 0), (["ls", "STORE", "--trash"], "steps", 0),
    (["trash", "list", "STORE"], "trash", 0), (["trash", "list", "STORE", "9"], "failure", 1), (["trash", "mend", "STORE"], "failure", 2),
    (["undelete", "STORE", "1001"], "ok", 0), (["undelete", "STORE", "1001"], "failure", 1),
    (["info", "STORE", "1001@1"], "version", 0), (["restore", "STORE", "1001@9"], "failure", 1), (["restore", "STORE", "1001"], "failure", 2),
    (["begin", "STORE", "by hand"], NEEDS_MOUNT, 0), (["resume", "STORE", "step_7"], NEEDS_MOUNT, 0), (["commit", "STORE", "step_7"], "ok", 0), (["commit", "STORE", "step_7"], "failure", 1),
    (["abort", "STORE", "3000", "--yes"], "ok", 0), (["abort", "STORE", "3000", "--yes"], "failure", 1),
    (["rm", "STORE", "1001"], "ok", 0), (["trash", "empty", "STORE"], "failure", 2), (["trash", "empty", "STORE", "--yes"], "trash", 0),
    (["status", "STORE"], "status", 0), (["status", "NEW"], "status", 0),
    (["config", "STORE"], "config", 0), (["config", "STORE", "trash"], "config", 0), (["config", "STORE", "trash=1d"], "config", 0), (["config", "STORE", "no=1"], "failure", 2),
    (["policy", "show", "STORE"], "policy", 0), (["policy", "check", "POLICY"], "ok", 0), (["policy", "set", "STORE", "POLICY"], "ok", 0), (["policy", "set", "STORE", "OUT"], "failure", 1),
    (["policy", "explain", "STORE", "0..20"], "explained", 0), (["policy", "explain", "STORE", "0..20", "POLICY"], "explained", 0), (["policy", "mend", "STORE"], "failure", 2),
    (["retain", "STORE", "--dry-run"], "retained", 0), (["retain", "STORE", "9"], "failure", 2),
    (["should-save", "STORE", "9000", "--force"], "decision", 0), (["should-save", "STORE", "7"], "decision", 1), (["should-save", "STORE", "x"], "failure", 2),
    (["preempt", "STORE"], "ok", 0), (["preempt", "STORE", "9"], "failure", 2), (["status", "STORE"], "status", 0),
    (["wait", "STORE", "2000"], "ok", 0), (["wait", "STORE", "9", "--timeout", "0"], "failure", 1),
    (["log", "STORE"], "log", 0), (["log", "STORE", "1000"], "log", 0),
    (["doctor", "STORE"], "doctor", None),
    (["mount", "STORE", "POINT", "-o", "ro"], "ok", 0), (["umount", "POINT"], "ok", 0), (["umount", "POINT"], "failure", 1),
    (["bench", *BENCH, "POINT"], "bench", 0),
]


@pytest.fixture
def filled(mount, commit, scratch):
    """Steps 1000 and 2000, 3000 staged, step_7 left over by a mount before; folders for the verbs."""
    (mount / "step_7").mkdir()
    trees.write(mount / "step_7/f", b"left")
    mount.remount()
    for name, text in (("1000", b""), ("2000", b'{"temporary":true,"extras":{"tag":"best"},"metrics":{"loss":2.5}}'), ("3000", None)):
        (mount / name).mkdir()
        trees.fill(mount / name, seed=name)
        if text is not None:
            numpy.save(mount / name / "array.npy", numpy.arange(6).reshape(2, 3))
            commit(mount / name, text)
    for name in ("out", "point"):
        (scratch / name).mkdir()
    trees.fill(scratch / "out")


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "at rest"])
def test_every_verb_answers_as_the_schema_says(filled, mount, store, scratch, ckptfs, mounted):
    places = {"STORE": store, "NEW": scratch / "new", "COPY": scratch / "copy", "OUT": scratch / "out", "GOT": scratch / "got", "EXPORT": scratch / "export", "POINT": scratch / "point", "POLICY": scratch / "policy.json", "RULES": scratch / "rules.json", "META": scratch / "meta.json"}
    places["META"].write_text('{"metrics":{"loss":1}}')
    places["POLICY"].write_text('{"preset": "eformer"}')
    places["RULES"].write_text('[{"reshape": "array", "shape": [3, -1]}]')
    verbs = set(ckptfs("help", "--words").stdout.split())
    assert {words[0] for words, _, _ in CASES} | WITHOUT_JSON == verbs, "a verb without a case here"
    if not mounted:
        mount.umount()
    for words, schema, status in CASES:
        done = ckptfs(*[places.get(w, w) for w in words], "--json", check=False, stdin=subprocess.DEVNULL)
        if schema == NEEDS_MOUNT:
            schema, status = ("ok", 0) if mounted else ("failure", 1)
        what = f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode == status or status is None, what
        answer = json.loads(done.stdout)
        assert mismatch(answer, schema) is None, f"{mismatch(answer, schema)}\n{what}"
        assert answer or schema in ("sessions", "steps") and not mounted, f"nothing was there to look at: {what}"
    for verb in verbs - WITHOUT_JSON:
        done = ckptfs(verb, "--json", "--nosuch", check=False)
        assert done.returncode == 2 and mismatch(json.loads(done.stdout), "failure") is None, verb
    for verb in WITHOUT_JSON:
        done = ckptfs(verb, "--json", check=False)
        assert done.returncode == 2 and done.stdout == ""


def test_status_file_is_as_the_schema_says(filled, mount, stage):
    assert mismatch(mount.status(), "status") is None and len(mount.status()["staged"]) == 2
    with pytest.raises(OSError):
        trees.write(mount / "3000/.finalize", b"{not json")
    assert mismatch(mount.status(), "status") is None and mount.status()["last_error"]


def test_schema_check_can_fail():
    assert mismatch({"ok": True, "more": 1}, "ok") is None
    for value, schema in (({"ok": 1}, "ok"), ({}, "ok"), ([], "ok"), ("x", "time"), ("2024-05-01T12:00:00Z", "time"), (-1, "count"), (True, "count"), (1.5, "count"), (None, "count"),
                          ({"error": "", "hint": None}, "failure"), ([{"path": "/a"}], "files"), ({}, "config"), ({"a": {}}, "config"), ("x", "time or null"), ([], "bench")):
        assert mismatch(value, schema) is not None, (value, schema)
    with pytest.raises(ValueError):
        mismatch(1, {"typ": "integer"})
    for name in DEFINITIONS:
        assert mismatch(object(), name) is not None, f"{name} lets everything pass"
