"""What a mount decides: should_save, policy.json and preempted in .ckptfs, the verbs beside them, and what it deletes by its policy."""

import concurrent.futures
import errno
import json
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

from support import storelog, trees
from support.fixtures import both_modes, needs_root
from support.mounting import Mount, wait_until
from support.schema import mismatch

pytestmark = pytest.mark.timeout(120)
OTHER = 4002
NEVER = {"save": {"specific_steps": {"steps": []}}}


@pytest.fixture
def policy(mount):
    """Sets one by its file."""
    def put(document):
        (mount / ".ckptfs/policy.json").write_text(json.dumps(document))
    return put


@pytest.fixture
def save(stage, commit, mount):
    def make(name, temporary=False, **metrics):
        stage(str(name))
        commit(mount / str(name), json.dumps({"temporary": temporary, "metrics": metrics}).encode())
    return make


def answer(mount, step):
    return (mount / f".ckptfs/should_save/{step}").read_text()[0] + "\n"


def ask(ckptfs, store, step, *words):
    done = ckptfs("should-save", store, step, *words, check=False)
    assert done.returncode == (0 if done.stdout.startswith("yes ") else 1), done.stderr
    return done.stdout.rstrip("\n")


def sh(script, **exec_fields):
    return {"save": {"exec": {"command": ["/bin/sh", "-c", script], **exec_fields}}}


def error_of(act, *args):
    with pytest.raises(OSError) as e:
        act(*args)
    return errno.errorcode[e.value.errno]


# --- Answers --------------------------------------------------------------------------------------------------------------


@both_modes
def test_a_file_for_each_step_says_whether_it_is_to_be_saved(mount, policy, save, store, ckptfs, mode):
    policy({"save": {"any": [{"time_interval": {"save_interval_secs": 1}}, {"fixed_interval": {"interval": 100}}]}, "skip_zero": True})
    assert answer(mount, 0) == "0\n" and answer(mount, 100) == "1\n"
    time.sleep(1.1)
    assert answer(mount, 150) == "1\n"
    for step, said, text in ((100, [True, True, "fixed_interval"], "1 permanent fixed_interval\n"), (150, [True, False, "time_interval"], "1 temporary time_interval\n"), (120, [False, False, None], "0\n")):
        assert (mount / f".ckptfs/should_save/{step}").read_text() == text
        made = ckptfs.json("should-save", store, step, check=False)
        assert mismatch(made, "decision") is None and list(made.values()) == said
    save(200)
    assert answer(mount, 200) == answer(mount, 120) == "0\n" and answer(mount, 150) == "1\n"
    assert ckptfs("should-save", mount / "", 200, check=False).returncode == 1
    assert ask(ckptfs, store, 200, "--force") == "yes permanent force" and answer(mount, 200) == "1\n"
    assert mount.listing(".ckptfs/should_save") == [] and "should_save" in mount.listing(".ckptfs") and mount.errors() == []


def test_what_is_no_number_is_not_there(mount):
    where = mount / ".ckptfs/should_save"
    for name in ("x", "-1", "1x", "01", "1.json", ".json", "9" * 19, "1 ", "0x1"):
        assert not os.path.exists(where / name), name
    assert os.path.exists(where / ("9" * 18)) and answer(mount, "0") == "1\n"
    assert error_of(os.open, where / "1", os.O_WRONLY) == "EACCES" and error_of(os.mkdir, where / "1") in ("EEXIST", "EPERM")
    assert error_of(os.open, where / "new", os.O_WRONLY | os.O_CREAT) == "EPERM" and error_of(os.unlink, where / "1") == "EPERM"


def test_a_decision_holds_until_its_step_is_committed_or_deleted_or_the_policy_set(mount, policy, save):
    policy({"save": {"fixed_interval": {"interval": 1}}})
    assert answer(mount, 5) == "1\n"
    save(3)
    assert answer(mount, 5) == "1\n"
    policy(NEVER)
    assert answer(mount, 5) == answer(mount, 6) == "0\n", "under another policy"
    policy({"save": {"fixed_interval": {"interval": 1}}})
    save(5)
    assert answer(mount, 5) == "0\n" and answer(mount, 7) == "1\n"
    shutil.rmtree(mount / "5")
    assert answer(mount, 5) == answer(mount, 7) == "1\n", "after a rollback"


def test_a_program_is_told_which_run_and_store_it_decides_of(mount, policy, store, ckptfs, scratch):
    policy(sh(f'echo "$CKPT_RUN|$CKPT_STORE" >>{scratch}/told'))
    (mount / "runs/a").mkdir(parents=True)
    assert answer(mount, 5) == answer(mount, "runs/a/5") == "1\n" and ask(ckptfs, store, "runs/b/6").startswith("yes")
    assert (scratch / "told").read_text().split() == [f"{run}|{store}" for run in ("", "runs/a", "runs/b")]


def test_eight_processes_half_of_them_verbs_get_one_answer(mount, policy, store, ckptfs, scratch):
    """The program would give each another one."""
    count = scratch / "count"
    policy(sh(f"echo >>{count}; sleep 0.3; test $(($(wc -l <{count}) % 2)) = 1", timeout_secs=20))

    def one(step, i):
        if i % 2:
            return {"yes permanent exec": "1 permanent exec\n", "no": "0\n"}[ask(ckptfs, store, step)]
        return subprocess.run(["cat", mount / f".ckptfs/should_save/{step}"], capture_output=True, text=True, check=True, timeout=60).stdout
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for step in range(1, 6):
            assert set(pool.map(lambda i: one(step, i), range(8))) == {"1 permanent exec\n" if step % 2 else "0\n"}
    assert len(count.read_text()) == 5


def test_a_daemon_that_is_killed_while_it_decides_hangs_nobody(mount, policy, store, ckptfs, scratch):
    """Who asked it by a file has an error; the verbs decide by themselves then, once."""
    began, count = scratch / "began", scratch / "count"
    policy(sh(f"test -e {began} && {{ echo >>{count}; exit 0; }}; touch {began}; sleep 5", timeout_secs=20))

    def one(i):
        if i % 2:
            return ask(ckptfs, store, 7)
        return subprocess.run(["cat", mount / ".ckptfs/should_save/7"], capture_output=True, text=True, check=False, timeout=60).stdout
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(one, i) for i in range(8)]
        wait_until(began.exists, what="the program")
        time.sleep(0.3)
        mount.kill9()
        assert [a.result(timeout=20) for a in asked] == ["", "yes permanent exec"] * 4
    assert len(count.read_text()) == 1


def test_a_program_that_takes_long_holds_up_who_asks_alone(mount, policy, save, scratch, agent):
    """A reader that is killed meanwhile holds up nobody, either."""
    began = scratch / "began"
    policy(sh(f"touch {began}; sleep 3; test $CKPT_STEP = 7", timeout_secs=20))
    readers = [agent() for _ in range(20)]  # more than there are threads that serve the kernel
    for a in readers:
        a.start("open(path).read()", path=str(mount / ".ckptfs/should_save/7"))
    wait_until(began.exists, what="the program")
    started = time.monotonic()
    readers[0].kill()
    save(1)
    assert mount.status()["last_commit"]["step"] == "1"
    assert time.monotonic() - started < 2 and all(a.busy for a in readers[1:])
    assert {a.result(timeout=20) for a in readers[1:]} == {"1 permanent exec\n"}


def test_a_program_that_fails_is_an_error_for_all_who_wait_and_one_line(mount, policy, store, ckptfs, scratch):
    count = scratch / "count"
    policy(sh(f"echo >>{count}; sleep 1; exit 7"))

    def one(i):
        if i % 2:
            done = ckptfs("should-save", store, 5, check=False)
            assert done.returncode == 2 and done.stdout == "" and "exec: /bin/sh ended with status 7" in done.stderr
            return "EIO"
        return error_of(answer, mount, 5)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(one, range(8))) == {"EIO"}
    runs = len(count.read_text())
    lines = mount.errors()
    assert 1 <= runs <= 2 and len(lines) == runs, "who came before it ended shares its failure"
    assert "should_save/5" in lines[0] and "exec: /bin/sh ended with status 7" in lines[0]
    policy(sh("exit 0"))
    assert answer(mount, 5) == "1\n", "what failed decided nothing"


def test_a_mount_that_ends_leaves_no_program_behind(mount, policy, scratch, agent):
    pid = scratch / "pid"
    policy(sh(f"echo $$ >{pid}.new; mv {pid}.new {pid}; sleep 50", timeout_secs=60))
    reader = agent()
    reader.start("open(path).read()", path=str(mount / ".ckptfs/should_save/7"))
    wait_until(pid.exists, what="the program")
    os.kill(mount.pid, signal.SIGTERM)
    with pytest.raises(OSError):
        reader.result(timeout=10)
    wait_until(lambda: not os.path.exists(f"/proc/{pid.read_text().strip()}"), timeout=5, what="the end of the program")
    wait_until(lambda: not mount.alive(), what="the end of the mount")


def test_a_policy_that_cannot_be_read_decides_nothing(mount, policy, save, store, ckptfs):
    save(1)
    policy({"keep": {"latest_n": {"n": 1}}})
    mount.umount()
    storelog.say(store, "policy", '{"save": {"continuous": {"minimum_interval_secs": -1}}, "keep": {"latest_n": {"n": 1}}}')
    mount.remount()
    assert error_of(answer, mount, 5) == error_of(mount.path.joinpath(".ckptfs/policy.json").read_text) == "EIO"
    assert len(mount.errors()) == 2 and all("save.continuous.minimum_interval_secs" in line for line in mount.errors())
    done = ckptfs("should-save", store, 5, check=False)
    assert done.returncode == 2 and "`ckptfs policy set` replaces it" in done.stderr
    for step in (2, 3):
        save(step)
    wait_until(lambda: [line for line in mount.errors() if "deletes nothing" in line], timeout=20)
    time.sleep(6)
    assert mount.listing() == ["1", "2", "3"]
    assert len([line for line in mount.errors() if "deletes nothing" in line]) == 1
    policy({"keep": {"latest_n": {"n": 1}}})
    save(4)
    wait_until(lambda: mount.listing() == ["4"], timeout=20, what="what the policy keeps")


def test_a_directory_that_holds_no_steps_is_no_run(mount, store, policy, save, ckptfs):
    """Who asks from there hears what the mount's file says."""
    policy({"save": {"initial": {}}})
    save(1)
    (mount / "logs").mkdir()
    (mount / "run7").mkdir()
    save("run7/5")
    assert answer(mount, 9) == "0\n" and ckptfs("should-save", "9", cwd=mount / "logs", check=False).stdout == "no\n"
    assert ckptfs("should-save", "logs/9", cwd=mount / "logs").stdout == "yes permanent initial\n", "it is named"
    assert ckptfs("should-save", "3", cwd=mount / "run7", check=False).stdout == "no\n", "not after 5"


def test_a_save_in_progress_is_known(mount, policy, stage, commit):
    policy({"save": {"continuous": {}}})
    assert mount.status()["saving_in_progress"] is False and answer(mount, 1) == "1\n"
    stage("1")
    assert mount.status()["saving_in_progress"] is True and answer(mount, 2) == "0\n"
    commit(mount / "1")
    assert mount.status()["saving_in_progress"] is False and answer(mount, 3) == "1\n"


@pytest.mark.parametrize("options", ["commit_quiet=200ms"], indirect=True)
def test_a_save_that_its_client_gave_up_is_none(mount, policy, stage):
    policy({"save": {"continuous": {}}})
    stage("1")
    with open(mount / "1/more", "wb"):
        time.sleep(2)
        assert mount.status()["saving_in_progress"] is True, "somebody has it open"
    wait_until(lambda: mount.status()["saving_in_progress"] is False)
    assert answer(mount, 2) == "1\n"


def test_a_mount_that_only_reads_saves_nothing(mount, world, store):
    reader = Mount.new(world, store, world.scratch / "ro", options=["ro"])
    assert answer(mount, 5) == "1\n" and answer(reader, 5) == "0\n"
    for act in (lambda: (reader / ".ckptfs/preempted").touch(), lambda: (reader / ".ckptfs/policy.json").write_text("{}")):
        assert error_of(act) == "EROFS"


# --- policy.json ----------------------------------------------------------------------------------------------------------


@both_modes
def test_policy_json_is_read_written_and_the_stores_own(mount, store, ckptfs, scratch, mode):
    at = mount / ".ckptfs/policy.json"
    assert json.loads(at.read_text()) == ckptfs.json("policy", "show", store)
    file = scratch / "policy.json"
    file.write_text('{"preset": "eformer", "keep": {"latest_n": {"n": 3}}}')
    subprocess.run(["cp", file, at], check=True)
    assert at.read_text() == ckptfs("policy", "show", store).stdout and json.loads(at.read_text())["keep"] == {"latest_n": {"n": 3}}
    ckptfs("policy", "set", store, "-", input=json.dumps(NEVER))
    assert json.loads(at.read_text())["save"] == NEVER["save"]
    subprocess.run(["sh", "-c", 'echo "{\\"keep\\":" > "$0"; exit 0', at], check=True)  # not whole: the shell says nothing
    subprocess.run(["bash", "-c", 'echo "{}" > "$0"', at], check=True)  # it closes a descriptor before it writes
    assert len(mount.errors()) == 1 and json.loads(at.read_text())["save"] == json.loads(ckptfs("policy", "show", store).stdout)["save"] != NEVER["save"]
    before = at.read_text()
    with open(at, "r+") as f:
        f.write(before.replace("true", "false"))
        f.truncate()
    assert at.read_text() == before.replace("true", "false")
    mount.remount()
    assert at.read_text() == before.replace("true", "false")


@pytest.mark.parametrize("text, why", [
    ('{"save": {"any": [{"initial": {}}, {"fixed_interval": {"interval": 0}}]}}', "save.any[1].fixed_interval.interval: must be a whole number of at least 1"),
    ('{"keep": {"lates_n": {"n": 1}}}', 'did you mean "latest_n"?'), ('{"save": ', "not JSON: line 1"), (" ", "not JSON"), ("{}" + " " * 70000, "65536 bytes"),
    ("[" * 5000, "not JSON"),
], ids=lambda x: x[:20])
def test_a_bad_policy_is_refused_at_close_and_the_old_one_stays(mount, policy, text, why):
    at = mount / ".ckptfs/policy.json"
    policy({"keep": {"latest_n": {"n": 7}}})
    before = at.read_text()
    fd = os.open(at, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(fd, text.encode())
    except OSError as e:
        assert e.errno == errno.EFBIG and len(text) > 65536
        os.close(fd)
    else:
        assert at.read_text() == before
        assert error_of(os.close, fd) == "EINVAL"
        line, = mount.errors()
        assert "policy.json" in line and why in line and "EINVAL" in line
    assert at.read_text() == before


def test_policy_json_takes_no_rename_and_says_what_it_takes(mount, policy, scratch):
    """As editors, sed -i and careful programs write: a file beside it, renamed over it."""
    at = mount / ".ckptfs/policy.json"
    policy(NEVER)
    before = at.read_text()
    for place in (mount, scratch):
        (place / "new").write_text("{}")
    for act, told in ((lambda: os.open(mount / ".ckptfs/policy.json.tmp", os.O_WRONLY | os.O_CREAT), "policy.json.tmp"), (lambda: os.rename(mount / "new", at), "policy.json"),
                      (lambda: os.rename(at, mount / ".ckptfs/policy.json~"), "policy.json~"), (lambda: os.rename(at, mount / "old"), "policy.json"), (lambda: os.unlink(at), "policy.json")):
        known = len(mount.errors())
        assert error_of(act) == "EPERM"
        line, = mount.errors()[known:]
        assert f"\t{told}\tEPERM\t" in line and "write policy.json in place, as cp does, or use `ckptfs policy set`" in line
    for words in (["sed", "-i", "s/true/false/", at], ["mv", scratch / "new", at], ["mv", mount / "new", at]):
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode and "Operation not permitted" in done.stderr and at.read_text() == before
    assert (mount / "new").exists() and (scratch / "new").exists() and sorted(os.listdir(mount / "")) == ["new"]
    subprocess.run(["cp", scratch / "new", at], check=True)
    assert at.read_text() != before


def test_policy_json_that_is_cut_off_and_not_written_stays(mount, policy):
    policy(NEVER)
    before = (mount / ".ckptfs/policy.json").read_text()
    os.close(os.open(mount / ".ckptfs/policy.json", os.O_WRONLY | os.O_TRUNC))
    assert (mount / ".ckptfs/policy.json").read_text() == before and mount.errors() == []
    with open(mount / ".ckptfs/policy.json", "a") as f:
        f.write(" \n")
    assert (mount / ".ckptfs/policy.json").read_text() == before and mount.errors() == []


@needs_root
def test_others_than_who_mounts_change_nothing(world, store, agent):
    mount = Mount.new(world, store, options=["allow_other"])
    other = agent(uid=OTHER)
    at = str(mount / ".ckptfs")
    assert other.run("open(at + '/policy.json').read(), open(at + '/should_save/5').read()", at=at)[1] == "1 permanent initial\n"
    for code in ("os.open(at + '/policy.json', os.O_WRONLY)", "os.open(at + '/preempted', os.O_WRONLY | os.O_CREAT)"):
        assert other.errno_of(code) == "EACCES"
    (mount / ".ckptfs/preempted").touch()
    for code in ("os.open(at + '/preempted', os.O_WRONLY)", "os.unlink(at + '/preempted')", "os.utime(at + '/preempted')", "os.truncate(at + '/policy.json', 0)"):
        assert other.errno_of(code) in ("EACCES", "EPERM"), code


# --- Programs -------------------------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("what", ["", "log", "snap", "log/0000000000000001"], ids=lambda x: x or "store")
@pytest.mark.parametrize("how", [lambda p: os.chmod(p, os.stat(p).st_mode | 0o020), lambda p: os.chmod(p, os.stat(p).st_mode | 0o002), lambda p: os.chown(p, OTHER, OTHER)],
                         ids=["group", "others", "owner"])
def test_no_program_is_run_that_somebody_else_could_have_set(mount, policy, store, ckptfs, scratch, what, how):
    ran = scratch / "ran"
    policy(sh(f"touch {ran}"))
    how(store / what)
    assert error_of(answer, mount, 5) == "EIO"
    line, = mount.errors()
    assert "EPERM" in line and "others could have set it" in line and f"{store / what}:" not in line and str(store / what) in line
    done = ckptfs("should-save", store, 5, check=False)
    assert done.returncode == 2 and "others could have set it" in done.stderr and len(done.stderr.splitlines()) == 2
    mount.umount()
    assert "others could have set it" in ckptfs("should-save", store, 5, check=False).stderr
    assert "others could have set it" in ckptfs("policy", "explain", store, "1..2", check=False).stderr
    assert ckptfs.json("policy", "show", store)["save"] and not ran.exists()
    assert ckptfs("policy", "explain", store, "1..2", "-", input=json.dumps(sh(f"touch {ran}"))).returncode == 0 and ran.exists(), "one's own file"
    os.chown(store / what, 0, 0)
    os.chmod(store / what, 0o700)
    assert ask(ckptfs, store, 5) == "yes permanent exec"


# --- Preemption -----------------------------------------------------------------------------------------------------------


PREEMPTION = {"save": {"preemption": {}}}


def by_touch(mount, ckptfs):
    subprocess.run(["touch", mount / ".ckptfs/preempted"], check=True)


def by_verb(mount, ckptfs):
    assert ckptfs.json("preempt", mount / "") == {"ok": True}


def by_signal(mount, ckptfs):
    os.kill(mount.pid, signal.SIGUSR1)
    wait_until(lambda: mount.status()["preempted"])


def test_preemption_at_a_step_is_not_taken_for_one_at_the_next(mount, policy):
    """A shell makes the file, and closes a descriptor of it, before its command writes."""
    policy(PREEMPTION)
    writer = subprocess.Popen(["sh", "-c", f"(read go; echo 1200) > {mount.path}/.ckptfs/preempted"], stdin=subprocess.PIPE)
    for step in range(5):
        assert answer(mount, step) == "0\n"
        time.sleep(0.05)
    writer.communicate(b"go\n")
    assert writer.returncode == 0 and mount.status()["preempted_at"] == 1200
    assert answer(mount, 1199) == "0\n" and answer(mount, 1200) == "1\n"
    os.unlink(mount / ".ckptfs/preempted")
    os.close(os.open(mount / ".ckptfs/preempted", os.O_WRONLY | os.O_CREAT))
    wait_until(lambda: mount.status()["preempted"])


@pytest.mark.parametrize("preempt", [by_touch, by_verb, by_signal])
def test_a_preemption_is_seen_at_one_step_by_all(mount, policy, ckptfs, store, preempt):
    policy(PREEMPTION)
    assert not (mount / ".ckptfs/preempted").exists() and answer(mount, 7) == answer(mount, 8) == "0\n"
    preempt(mount, ckptfs)
    assert (mount.status()["preempted"], mount.status()["preempted_at"]) == (True, None) and "preempted" in mount.listing(".ckptfs")
    assert answer(mount, 8) == "0\n" and ask(ckptfs, store, 7) == "no", "who comes later to a step that was decided"
    assert answer(mount, 9) == "1\n" and ask(ckptfs, store, 9) == "yes permanent preemption"
    preempt(mount, ckptfs)
    os.unlink(mount / ".ckptfs/preempted")
    assert answer(mount, 9) == "1\n" and answer(mount, 10) == "0\n"
    assert mount.status()["preempted"] is False and error_of(os.unlink, mount / ".ckptfs/preempted") == "ENOENT"
    preempt(mount, ckptfs)
    mount.remount()
    assert mount.status()["preempted"] is False and answer(mount, 11) == "0\n" and mount.errors() == []


@pytest.mark.parametrize("preempt", [lambda mount, ckptfs: ckptfs("preempt", "--at", 20, mount.store), lambda mount, ckptfs: (mount / ".ckptfs/preempted").write_text("20\n")],
                         ids=["verb", "file"])
def test_a_preemption_is_reached_at_the_step_that_is_said(mount, policy, ckptfs, preempt):
    policy(PREEMPTION)
    preempt(mount, ckptfs)
    assert (mount / ".ckptfs/preempted").read_text() == "20\n" and mount.status()["preempted_at"] == 20
    assert [answer(mount, step) for step in (18, 19, 20, 21)] == ["0\n", "0\n", "1\n", "1\n"]
    assert error_of((mount / ".ckptfs/preempted").write_text, "soon\n") == "EINVAL"
    assert mount.status()["preempted_at"] == 20


def test_a_preemption_at_rest_is_known_there_and_to_the_next_mount(mount, policy, ckptfs, store):
    policy(PREEMPTION)
    mount.umount()

    def said():
        status = ckptfs.json("status", store)
        assert mismatch(status, "status") is None
        return status["preempted"], status["preempted_at"]
    assert ask(ckptfs, store, 5) == "no" and said() == (False, None)
    assert ckptfs.json("preempt", store) == {"ok": True}
    assert ask(ckptfs, store, 5) == "no", "it was decided"
    assert ask(ckptfs, store, 6) == "yes permanent preemption" and said() == (True, None)
    ckptfs("preempt", "--cancel", store)
    assert ask(ckptfs, store, 7) == "no" and said() == (False, None)
    ckptfs("preempt", "--at", 20, store)
    assert [ask(ckptfs, store, step) for step in (19, 20)] == ["no", "yes permanent preemption"] and said() == (True, 20)
    mount.remount()
    assert (mount / ".ckptfs/preempted").read_text() == "20\n" and mount.status()["preempted_at"] == 20
    assert answer(mount, 18) == "0\n" and answer(mount, 21) == "1\n" and ckptfs.json("status", store)["preempted_at"] == 20
    mount.umount()
    assert said() == (False, None) and ask(ckptfs, store, 22) == "no", "with its mount"


def test_a_preemption_of_a_mount_is_taken_back_by_its_verb_and_goes_however_it_ends(mount, policy, ckptfs, store):
    policy(PREEMPTION)
    mount.umount()
    ckptfs("preempt", store)
    mount.remount()
    assert answer(mount, 5) == "1\n"
    ckptfs("preempt", store / "", "--cancel")
    assert answer(mount, 6) == "0\n" and not (mount / ".ckptfs/preempted").exists()
    ckptfs("preempt", store)
    mount.kill9()
    mount.remount()
    assert not mount.status()["preempted"] and answer(mount, 7) == "0\n"


# --- What the policy does not keep ----------------------------------------------------------------------------------------


@both_modes
def test_what_the_policy_does_not_keep_goes_behind(mount, policy, save, store, ckptfs, mode):
    policy({"keep": {"any": [{"latest_n": {"n": 2}}, {"best_n": {"metric": "loss", "n": 1, "reverse": True}}]}})
    for step, metrics in ((1, {"loss": 3}), (2, {"loss": 0.5}), (3, {}), (4, {"accuracy": 1}), (5, {"loss": 2}), (6, {"loss": 0.5})):
        save(step, **metrics)
    ckptfs("pin", store, 1)
    save(7, loss=4)
    with open(mount / "2/config.json", "rb") as f:
        wait_until(lambda: "2" not in mount.listing(), timeout=20, what="the retention")
        assert f.read(), "who reads it reads on"
    wait_until(lambda: mount.status()["removing"] == 0)
    # What has no such metric stays: keep_checkpoints_without_metrics. Of equals the later one is the best.
    assert mount.listing() == ["1", "3", "4", "6", "7"] and mount.errors() == []
    assert sorted(ckptfs("ls", "--trash", store).stdout.split()) == ["2", "5"]
    assert all(row["keep"] for row in ckptfs.json("retain", store))
    mount.remount()
    assert mount.listing() == ["1", "3", "4", "6", "7"]


def test_nothing_goes_unasked(mount, policy, save):
    for step in (1, 2, 3):
        save(step)
    policy({"save": {"fixed_interval": {"interval": 1}}})
    save(4)
    time.sleep(6)
    assert mount.listing() == ["1", "2", "3", "4"]


def test_retention_beside_saves_changes_and_removals(mount, policy, save, commit):
    policy({"keep": {"latest_n": {"n": 2}}})
    for step in (1, 2, 3, 4):
        save(step)
    trees.write(mount / "2/config.json", b"{}")  # reopened: its place among the others is not known
    save(5)
    time.sleep(7)
    assert mount.listing() == ["1", "3", "4", "5"] and (mount / "2").exists()
    commit(mount / "2")
    wait_until(lambda: mount.listing() == ["2", "4", "5"], timeout=20, what="the retention")
    assert mount.errors() == []


def test_retention_beside_readers(mount, policy, stage, commit):
    """A step that is listed is whole for who opens its files, or is gone at the first of them that he opens; never something else."""
    policy({"keep": {"latest_n": {"n": 1}}})
    made, whole, left = {}, set(), threading.Event()

    def read(name):
        for path, data in made[name].items():
            try:
                f = open(mount / name / path, "rb")
            except FileNotFoundError:
                return
            with f:
                first = f.read(10)
                time.sleep(0.01)
                assert first + f.read() == data, f"{name}/{path}"
        whole.add(name)

    def reader():
        while not left.is_set():
            for name in mount.listing():
                read(name)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(reader) for _ in range(4)]
        for step in range(1, 21):
            made[str(step)] = stage(str(step))
            commit(mount / str(step))
            time.sleep(0.4)
        wait_until(lambda: mount.listing() == ["20"], timeout=30, what="the retention")
        left.set()
        for r in readers:
            r.result()
    assert len(whole) > 10 and mount.errors() == []


def test_a_framework_that_rotates_by_itself_comes_first(mount, policy, save):
    policy({"keep": {"latest_n": {"n": 1}}})
    for step in range(1, 5):
        save(step)
        if step > 1:
            shutil.rmtree(mount / str(step - 1))
    assert mount.listing() == ["4"] and mount.errors() == []
