"""Policies by the command line: set, judged, played through; what is decided of steps, and which of them stay."""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest

from support import storelog
from support.mounting import Mount
from support.schema import mismatch

pytestmark = pytest.mark.timeout(120)

NEVER = {"save": {"specific_steps": {"steps": []}}}


@pytest.fixture
def made(ckptfs, store):
    """The store, with nothing in it."""
    ckptfs("init", store)
    return store


@pytest.fixture
def save(ckptfs, made, scratch):
    """Commits a step: save(1000, loss=0.5, temporary=True)."""
    folder = scratch / "folder"
    folder.mkdir()
    (folder / "model").write_text("weights")

    def commit(name, temporary=False, **metrics):
        (scratch / "metadata").write_text(json.dumps({"temporary": temporary, "metrics": metrics}))
        ckptfs("save", made, folder, name, "--metadata", scratch / "metadata")
    return commit


@pytest.fixture
def policy(ckptfs, made):
    """Sets one."""
    def put(document):
        ckptfs("policy", "set", made, "-", input=json.dumps(document))
    return put


def ask(ckptfs, store, step, *words):
    done = ckptfs("should-save", store, step, *words, check=False)
    assert done.returncode == (0 if done.stdout.startswith("yes ") else 1), done.stderr
    return done.stdout.rstrip("\n")


# --- The document ---------------------------------------------------------------------------------------------------------


def test_policy_is_shown_in_full_and_can_be_set_again(ckptfs, made, scratch):
    for preset in ("orbax-v0", "eformer", "maxtext", "orbax-v1"):
        file = scratch / "policy.json"
        file.write_text(json.dumps({"preset": preset, "keep": {"latest_n": {"n": 3}}}))
        assert ckptfs("policy", "check", file).stdout == ckptfs("policy", "check", made, file).stdout == ""
        ckptfs("policy", "set", made, file)
        shown = ckptfs("policy", "show", made).stdout
        assert json.loads(shown) == ckptfs.json("policy", "show", made) and "preset" not in shown
        assert mismatch(json.loads(shown), "policy") is None
        file.write_text(shown)
        ckptfs("policy", "set", made, file)
        assert ckptfs("policy", "show", made).stdout == shown
    assert storelog.said(made, "policy") == json.dumps(json.loads(shown), separators=(",", ":"), sort_keys=True)


@pytest.mark.parametrize("text, why", [
    ('{"save": {"any": [{"initial": {}}, {"fixed_interval": {"interval": 0}}]}}', "save.any[1].fixed_interval.interval: must be a whole number of at least 1"),
    ('{"keep": {"lates_n": {"n": 1}}}', 'keep: there is no policy to keep "lates_n"; did you mean "latest_n"?'),
    ('{"save": ', "not JSON: line 1"), ("", "not JSON"), ("[" * 5000, "not JSON"), (" " * 70000, "has more than 65536 bytes"), ('{"a\\nb": 1}', 'there is no field "a?b"'),
], ids=lambda x: x[:20])
def test_bad_policy_is_one_clear_line_and_the_old_one_stays(ckptfs, made, policy, scratch, text, why):
    policy({"keep": {"latest_n": {"n": 7}}})
    before = ckptfs("policy", "show", made).stdout
    file = scratch / "policy.json"
    file.write_text(text)
    for words in (["check", file], ["set", made, file], ["explain", made, "0..9", file]):
        done = ckptfs("policy", *words, check=False)
        assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith(f"ckptfs: {file}: {why}")
        assert ckptfs("policy", "show", made).stdout == before


def test_policy_is_set_beside_a_mount(ckptfs, mount, store):
    ckptfs("policy", "set", store, "-", input=json.dumps(NEVER))
    assert ckptfs.json("policy", "show", mount / "")["save"] == NEVER["save"]
    mount.umount()
    assert ask(ckptfs, store, 7) == "no"


def test_damaged_policy_of_a_store_decides_nothing_and_can_be_replaced(ckptfs, made, save, policy):
    for step in (1, 2):
        save(step)
    policy({"keep": {"latest_n": {"n": 1}}})
    storelog.say(made, "policy", '{"keep": {"latest_n": {"n": -1}}}')
    for words, status in ((["should-save", made, 9], 2), (["retain", made], 1), (["policy", "show", made], 1)):
        done = ckptfs(*words, check=False)
        assert done.returncode == status and "its policy is damaged: keep.latest_n.n: must be" in done.stderr, done.stderr
        assert "`ckptfs policy set` replaces it" in done.stderr
    assert ckptfs("ls", made).stdout.split() == ["1", "2"]
    policy({"keep": {"latest_n": {"n": 1}}})
    ckptfs("retain", made)
    assert ckptfs("ls", made).stdout.split() == ["2"]


def test_those_who_set_a_policy_at_once_leave_one_of_them(ckptfs, made):
    def put(n):
        return [ckptfs("policy", "set", made, "-", input=json.dumps({"keep": {"latest_n": {"n": n}}}), check=False) for _ in range(5)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        done = sum(pool.map(put, range(1, 5)), [])
    assert all(d.returncode == 0 for d in done), [d.stderr for d in done]
    assert ckptfs.json("policy", "show", made)["keep"]["latest_n"]["n"] in range(1, 5)


# --- explain --------------------------------------------------------------------------------------------------------------


def test_explain_tables_what_is_saved_and_what_stays(ckptfs, made):
    text = json.dumps({"save": {"any": [{"step_intervals": [{"every": 5, "until": 10}, {"every": 10}]}, {"time_interval": {"save_interval_secs": 180}}]}, "skip_zero": True,
                       "keep": {"latest_n": {"n": 2}}})
    words = ["policy", "explain", made, "0..24", "-", "--step-time", "1m"]
    lines = [re.split(r" {2,}|(?<=\d) |(?<=s) ", line.strip()) for line in ckptfs(*words, input=text).stdout.splitlines()[1:]]
    assert [line[0] for line in lines] == ["3", "5", "8", "10", "13", "16", "19", "20", "23"]
    assert len(ckptfs(*words, "-v", input=text).stdout.splitlines()) == 26
    rows = ckptfs.json(*words, input=text)
    assert rows[0]["policy"] == "skip_zero" and rows[3]["seconds"] == 180
    assert {r["step"]: r["why"] for r in rows if r["save"] and not r["permanent"]} == dict.fromkeys([3, 8, 13, 16, 19], "temporary, and not the newest") | {23: "the newest"}
    assert {r["step"]: r["keep"] for r in rows if r["permanent"]} == {5: False, 10: True, 20: True}
    assert ckptfs("ls", made).stdout == "" and storelog.said(made, "decisions") is None


def test_explain_goes_on_from_what_the_store_has(ckptfs, made, save, policy):
    save(10)
    save(30)
    policy({"save": {"initial": {}}})
    assert not [row for row in ckptfs.json("policy", "explain", made, "20..40") if row["save"]]
    assert [row["step"] for row in ckptfs.json("policy", "explain", made, "5..40") if row["save"]] == [5]


def test_explain_asks_of_the_run_as_should_save_does(ckptfs, made, save, policy):
    for folder in ("archive", "other"):
        (made / "tree" / folder).mkdir()
    save("archive/5000")
    policy({"save": {"initial": {}}})
    assert not [row for row in ckptfs.json("policy", "explain", made, "5001..5002") if row["save"]]
    save("other/6000")
    done = ckptfs("policy", "explain", made, "7001..7002", check=False)
    assert done.returncode == 1 and "several folders have steps" in done.stderr
    save(10)
    assert not [row for row in ckptfs.json("policy", "explain", made, "7001..7002") if row["save"]]


def test_explain_wants_times_that_end(ckptfs, made):
    done = ckptfs("policy", "explain", made, "0..19999", "--step-time", "24h", "--save-time", "24h", "--json")
    assert json.loads(done.stdout)[-1]["seconds"] == 19999 * 86400
    done = ckptfs("policy", "explain", made, "0..9", "--save-time", "25h", check=False)
    assert done.returncode == 2 and "25h: is longer than a day" in done.stderr


def test_a_program_is_told_which_run_and_store_it_decides_of(ckptfs, made, save, policy, scratch):
    policy({"save": {"exec": {"command": ["/bin/sh", "-c", f'echo "$CKPT_RUN|$CKPT_STORE" >>{scratch}/told']}}})
    (made / "tree/runs/a b").mkdir(parents=True)
    for words in (["5"], ["runs/a b/5"], ["runs/new/5"]):
        ckptfs("should-save", made, *words)
    save("runs/a b/1000")
    for words in (["should-save", made, "1001"], ["should-save", made, "runs/a b/1002"], ["policy", "explain", made, "1001..1001"]):
        ckptfs(*words)
    assert (scratch / "told").read_text().split("\n")[:-1] == [f"{run}|{os.path.realpath(made)}" for run in ("", "runs/a b", "runs/new", "runs/a b", "runs/a b", "runs/a b")]


def test_explain_tells_of_a_program_that_fails(ckptfs, made):
    text = json.dumps({"save": {"exec": {"command": ["/bin/sh", "-c", "test $CKPT_STEP -lt 3 || exit 7"]}}})
    done = ckptfs("policy", "explain", made, "1..4", "-", "--json", input=text, check=False)
    rows = json.loads(done.stdout)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert [(row["save"], row["error"]) for row in rows] == [(True, None)] * 2 + [(False, "exec: /bin/sh ended with status 7, which is neither 0 (yes) nor 1 (no)")] * 2


# --- should-save ----------------------------------------------------------------------------------------------------------


def test_should_save_answers_by_the_policy_and_the_steps_that_there_are(ckptfs, made, save, policy):
    policy({"save": {"any": [{"fixed_interval": {"interval": 100}}, {"initial": {}}]}, "skip_zero": True})
    assert ask(ckptfs, made, 0) == "no"
    assert ask(ckptfs, made, 7) == "yes permanent initial"
    assert ckptfs.json("should-save", made, 100) == {"save": True, "permanent": True, "policy": "fixed_interval"}
    save(100)
    assert ask(ckptfs, made, 100) == "no" and ask(ckptfs, made, 99) == "no" and ask(ckptfs, made, 150) == "no"
    assert ckptfs.json("should-save", made, 100, check=False) == {"save": False, "permanent": False, "policy": "skip_duplicate"}
    assert ask(ckptfs, made, 200) == "yes permanent fixed_interval"
    assert ask(ckptfs, made, 150, "--force") == "yes permanent force"
    assert ask(ckptfs, made, 150) == "yes permanent force", "all who ask"


def test_decision_holds_until_its_step_is_committed_or_deleted(ckptfs, made, save, policy):
    policy({"save": {"continuous": {}}})
    assert ask(ckptfs, made, 5) == "yes permanent continuous"
    save(3)
    assert ask(ckptfs, made, 5) == "yes permanent continuous", "another step does not change it"
    save(5)
    assert ask(ckptfs, made, 5) == "no"
    policy(NEVER)
    assert ask(ckptfs, made, 6) == "no"
    policy({"save": {"continuous": {}}})
    ckptfs("rm", made, 5)
    assert ask(ckptfs, made, 5) == "yes permanent continuous"
    assert ask(ckptfs, made, 6) == "yes permanent continuous", "after a rollback all is decided anew"


def test_damaged_decisions_are_made_anew(ckptfs, made, policy):
    for text in ("", "{", "[]", '{"clock_ns": 1, "decisions": [7]}', "x" * 60000):
        policy(NEVER)
        assert ask(ckptfs, made, 5) == "no"
        policy({})
        storelog.say(made, "decisions", text)
        assert ask(ckptfs, made, 5) == "yes permanent initial"
        storelog.say(made, "decisions", "")


def test_eight_processes_that_ask_at_once_get_one_answer(ckptfs, made, policy, scratch):
    """The program would give each another one."""
    count = scratch / "count"
    policy({"save": {"exec": {"command": ["/bin/sh", "-c", f"echo >>{count}; sleep 0.3; test $(($(wc -l <{count}) % 2)) = 1"], "timeout_secs": 10}}})
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for step in (1, 2, 3):
            said = set(pool.map(lambda _: ask(ckptfs, made, step), range(8)))
            assert said == {"yes permanent exec" if step % 2 else "no"}
    assert len(count.read_text()) == 3


def test_decider_that_dies_hangs_nobody(ckptfs, made, policy, scratch):
    began = scratch / "began"
    policy({"save": {"exec": {"command": ["/bin/sh", "-c", f"test -e {began} && exit 0; touch {began}; sleep 30"], "timeout_secs": 20}}})
    decider = subprocess.Popen([str(ckptfs), "should-save", made, "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not began.exists():
        time.sleep(0.02)
    others = []
    thread = threading.Thread(target=lambda: others.append(ask(ckptfs, made, 1)))
    thread.start()
    time.sleep(0.3)
    assert not others
    decider.send_signal(signal.SIGKILL)
    decider.wait()
    thread.join(20)
    assert others == ["yes permanent exec"]


def test_program_that_decides_nothing_is_status_2(ckptfs, made, policy):
    policy({"save": {"exec": {"command": ["/bin/sleep", "60"], "timeout_secs": 1}}})
    for _ in range(2):
        done = ckptfs("should-save", made, 5, check=False)
        assert done.returncode == 2 and done.stdout == "" and done.stderr == f"ckptfs: {made}: exec: /bin/sleep did not end within 1 s, and was ended\n"
    assert ask(ckptfs, made, 5, "--force") == "yes permanent force"


def test_store_that_cannot_be_written_saves_nothing(made, policy, ckptfs, world):
    policy({"save": {"initial": {}}})
    alone = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    script = 'mount --bind -o ro "$1" "$1" && "$2" should-save --json "$1" 5'
    done = subprocess.run([*alone, "sh", "-c", script, "sh", str(made), str(world.program)], capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)) == (1, {"save": False, "permanent": False, "policy": "read_only"}), done.stderr


def test_second_asker_waits_after_a_mount_too(ckptfs, made, policy, scratch, world):
    """Who had the store mounted before is not who has it: the program of the first takes a second, in which the others come."""
    policy({"save": {"exec": {"command": ["/bin/sh", "-c", f"touch {scratch}/runs; sleep 1"]}}})
    Mount.new(world, made).umount()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(ask, ckptfs, made, 5)
        while not (scratch / "runs").exists():
            time.sleep(0.01)
        assert [ask(ckptfs, made, 5), ask(ckptfs, made, 6), first.result()] == ["yes permanent exec"] * 3


def test_runs_of_one_store_are_named_by_their_folders(ckptfs, made, save, policy, world):
    for folder in "ab":
        (made / "tree" / folder).mkdir()
        save(f"{folder}/100")
    policy({"save": {"any": [{"initial": {}}, {"fixed_interval": {"interval": 100}}]}})
    done = ckptfs("should-save", made, 101, check=False)
    assert done.returncode == 2 and "several folders have steps: name the one of the run, as in FOLDER/1000" in done.stderr
    for mounted in (False, True):
        mount = Mount.new(world, made) if mounted else None
        assert [ask(ckptfs, made, step) for step in ("a/101", "a/200", "b/100", "b/300")] == ["no", "yes permanent fixed_interval", "no", "yes permanent fixed_interval"]
        assert ckptfs("should-save", made, "a/soon", check=False).returncode == 2
        assert ask(ckptfs, made, "nosuch/1") == "yes permanent initial", "its folder is still to be made"
    answers = mount / ".ckptfs/should_save"
    assert (answers / "a/101").read_text() == "0\n" and (answers / "b/300").read_text() == "1 permanent fixed_interval\n"
    (mount / "a/deep/run").mkdir(parents=True)
    assert (answers / "a/deep/run/7").read_text() == "1 permanent initial\n" and os.listdir(answers / "a") == []
    assert ckptfs("should-save", 7, cwd=mount / "a/deep/run").stdout == "yes permanent initial\n"
    for name in ("nosuch", "nosuch/1", "a/100/1", "a/01", "a/deep/run/x"):
        assert not (answers / name).exists(), name
    with pytest.raises(OSError, match="Too many links"):
        (answers / "101").read_text()
    assert any("name the one of the run" in line for line in mount.errors())


def test_wrong_store_is_status_2(ckptfs, scratch):
    for words in (["nowhere", "5"], [scratch, "5"]):
        assert ckptfs("should-save", *words, check=False, cwd=scratch).returncode == 2


# --- retain ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "at rest"])
def test_retain_moves_to_the_trash_what_the_policy_does_not_keep(ckptfs, made, save, policy, world, mounted):
    for step in range(1, 7):
        save(step, loss=abs(3 - step))
    save("best")
    ckptfs("pin", made, 1)
    policy({"keep": {"any": [{"latest_n": {"n": 1}}, {"best_n": {"metric": "loss", "n": 1, "reverse": True}}]}})
    mount = Mount.new(world, made) if mounted else None
    would = ckptfs.json("retain", "--dry-run", made)
    assert mismatch(would, "retained") is None
    assert [(row["step"], row["keep"], row["why"]) for row in would] == [
        ("1", True, "pinned"), ("2", False, "no policy keeps it"), ("3", True, "best_n"), ("4", False, "no policy keeps it"), ("5", False, "no policy keeps it"), ("6", True, "latest_n"),
        ("best", True, "has no number")]
    lines = ckptfs("retain", "-n", made).stdout.splitlines()
    assert "2    no   no policy keeps it" in lines and "best yes  has no number" in lines
    assert len(ckptfs("ls", made).stdout.split()) == 7
    done = ckptfs("retain", made)
    assert done.stdout == "" and done.stderr == "ckptfs: 3 of 7 steps went to the trash\n"
    assert ckptfs("ls", made).stdout.split() == ["1", "3", "6", "best"]
    assert ckptfs("ls", "--trash", made).stdout.split() == ["2", "4", "5"]
    assert all(row["keep"] for row in ckptfs.json("retain", made))
    ckptfs("undelete", made, 4)
    if mount:
        assert sorted(os.listdir(mount / "")) == ["1", "3", "4", "6", "best"]


def test_retain_leaves_alone_what_somebody_adds_to(ckptfs, made, save, policy, world):
    for step in (1, 2, 3):
        save(step)
    policy({"keep": {"latest_n": {"n": 1}}})
    mount = Mount.new(world, made)
    with open(mount / "2/extra", "w") as f:
        f.write("late")
        f.flush()
        done = ckptfs("retain", made, check=False)
        assert done.returncode == 1 and done.stderr.splitlines() == ["ckptfs: 2: Device or resource busy", "hint: another process is changing it; try again when it has ended"], done.stderr
        assert ckptfs("ls", made).stdout.split() == ["2", "3"]
    ckptfs("retain", made)
    assert ckptfs("ls", made).stdout.split() == ["3"]
    ckptfs("undelete", made, 2)
    assert (mount / "2/extra").read_text() == "late"


def test_each_folder_is_judged_by_itself(ckptfs, made, save, policy):
    for folder in "ab":
        (made / "tree" / folder).mkdir()
    for name in ("1", "a/1", "2", "a/2", "a/3", "b/1"):
        save(name)
    policy({"keep": {"latest_n": {"n": 1}}})
    assert {row["step"]: row["keep"] for row in ckptfs.json("retain", made)} == {"1": False, "2": True, "a/1": False, "a/2": False, "a/3": True, "b/1": True}
    assert ckptfs("ls", made).stdout.split() == ["2", "a/3", "b/1"]


def test_nothing_goes_unasked(ckptfs, made, save):
    for step in (1, 2, 3):
        save(step)
    assert [row["why"] for row in ckptfs.json("retain", made)] == ["preserve_all"] * 3
