"""The event `quiet`: a step whose writer sends no event is listed when nobody changes it any more, and a step that somebody left
half-done is not. A process that lists all the time is the judge."""

import json
import os
import signal
import time

import pytest

from support import trees
from support.fixtures import both_modes
from support.mounting import kill_quietly, wait_until
from support.quiet import ARRAY, FILES, SAVE, UNIT, event, listed, neighbour, options, save, stays_hidden, told  # noqa: F401
from support.watcher import watch

pytestmark = pytest.mark.timeout(120)

# --- How long -----------------------------------------------------------------------------------------------------------------------

@both_modes
def test_steps_of_a_loop_are_listed_when_they_are_whole(mount, world, agent, save, ckptfs, store):
    writer = agent()
    with watch(world, mount.path) as w:
        began = time.monotonic()
        save(writer, "step_1")
        listed(mount, "step_1")
        assert time.monotonic() - began >= 6 * UNIT
        for n in (2, 3):
            began = time.monotonic()
            save(writer, f"step_{n}")
            listed(mount, f"step_{n}")
            assert time.monotonic() - began >= UNIT
    w.check(3)
    assert [event(ckptfs, store, f"step_{n}") for n in (1, 2, 3)] == ["quiet"] * 3
    made = trees.files(mount / "step_3")
    mount.remount()
    assert mount.listing() == ["step_1", "step_2", "step_3"] and trees.files(mount / "step_3") == made


def test_numbers_in_the_names_of_files_are_the_steps_own(mount, neighbour, agent, save):
    writer = agent()
    save(writer, "step_2", ["config.json", "model_2.safetensors", "model.safetensors", "optim.safetensors"])
    listed(mount, "step_2")
    began = time.monotonic()
    save(writer, "step_3", ["config.json", "model_3.safetensors", "model.safetensors", "optim.safetensors"])
    listed(mount, "step_3")
    assert time.monotonic() - began < 25 * UNIT
    save(writer, "step_4", ["config.json", "model_3.safetensors", "model.safetensors"])
    stays_hidden(mount, "step_4")


def test_a_step_that_lacks_a_file_of_its_neighbour_waits_and_says_so(mount, world, neighbour, agent, save, ckptfs, store):
    with watch(world, mount.path) as w:
        began = time.monotonic()
        save(agent(), "step_2", FILES[:2])
        told(mount, "step_2", "optim.safetensors, which step_1 has")
        assert "step_2" not in mount.listing() and "ckptfs commit step_2" in str(mount.errors())
        listed(mount, "step_2")
        assert time.monotonic() - began >= 30 * UNIT
    w.check(2)
    assert event(ckptfs, store, "step_2") == "quiet"


def test_a_file_that_was_added_after_its_neighbour_was_complete_is_not_awaited(mount, neighbour, agent, save):
    trees.write(mount / "step_1/results.json", b"{}")
    wait_until(lambda: "results.json" in os.listdir(mount / "step_1"), 10)
    began = time.monotonic()
    save(agent(), "step_2")
    listed(mount, "step_2")
    assert time.monotonic() - began < 25 * UNIT


def test_a_name_that_a_framework_uses_waits_longer(mount, agent, save):
    save(agent(), "checkpoint-1")
    stays_hidden(mount, "checkpoint-1", 9)


def test_a_pause_begins_the_time_anew(mount, world, neighbour, agent, save):
    writer = agent()
    with watch(world, mount.path) as w:
        save(writer, "step_2", FILES[:2])
        for _ in range(4):
            stays_hidden(mount, "step_2", 2)
            save(writer, "step_2", ["notes.json"])
        began = time.monotonic()
        save(writer, "step_2", FILES[2:])
        listed(mount, "step_2")
        assert time.monotonic() - began >= UNIT
    w.check(2)


def test_files_that_come_after_it_are_additions(mount, neighbour, agent, save):
    writer = agent()
    save(writer, "step_2")
    listed(mount, "step_2")
    save(writer, "step_2", ["late.safetensors"])
    assert "late.safetensors" in os.listdir(mount / "step_2") and "step_2" in mount.listing()


# --- What is no step ----------------------------------------------------------------------------------------------------------------

def test_temporary_forms_and_sessions_that_were_begun_wait_for_their_event(mount, neighbour, agent, save, ckptfs, store):
    save(agent(), "step_2.orbax-checkpoint-tmp")
    ckptfs("begin", store, "step_3")
    save(agent(), "step_3")
    stays_hidden(mount, "step_3")
    stays_hidden(mount, "step_2.orbax-checkpoint-tmp", 3)


@pytest.mark.parametrize("options", [["commit_quiet=off"]], ids=["off"])
def test_it_can_be_turned_off(mount, neighbour, agent, save):
    save(agent(), "step_2")
    stays_hidden(mount, "step_2")


@pytest.mark.parametrize("how", ["cut off", "open", "mapped"])
def test_a_file_that_is_not_closed_and_whole_holds_it_back(mount, neighbour, agent, save, how):
    writer = agent()
    path = str(mount / "step_2/model.safetensors")
    save(writer, "step_2", FILES)
    if how == "cut off":
        writer.run("os.truncate(path, 2000)", path=path)
    elif how == "open":
        writer.run("fd = os.open(path, os.O_WRONLY)", path=path)
    else:
        writer.run("fd = os.open(path, os.O_RDWR); m = mmap.mmap(fd, 0); os.close(fd)", path=path)
    stays_hidden(mount, "step_2")
    if how == "cut off":
        save(writer, "step_2", FILES[1:2])
    else:
        writer.run("os.close(fd)" if how == "open" else "m.close()")
    listed(mount, "step_2")


def test_an_empty_file_is_whole_unless_its_name_is_one_of_arrays(mount, neighbour, agent, save):
    writer = agent()
    save(writer, "step_2")
    writer.run("os.close(os.open(path, os.O_CREAT | os.O_WRONLY))", path=str(mount / "step_2/DONE"))
    listed(mount, "step_2")
    save(writer, "step_3")
    writer.run("os.truncate(path, 0)", path=str(mount / "step_3/model.safetensors"))
    stays_hidden(mount, "step_3")
    told(mount, "step_3", "model.safetensors, which is cut off")


# --- Writers that do not go on ------------------------------------------------------------------------------------------------------

@both_modes
def test_a_stopped_writer_is_waited_for(mount, world, neighbour, agent, save):
    writer = agent()
    with watch(world, mount.path) as w:
        save(writer, "step_2")
        writer.kill(signal.SIGSTOP)
        stays_hidden(mount, "step_2")
        told(mount, "step_2", "is stopped")
        writer.kill(signal.SIGCONT)
        listed(mount, "step_2")
    w.check(2)


SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT, signal.SIGABRT, signal.SIGXCPU, signal.SIGBUS]
MOMENTS = {
    "no file": ("os.makedirs(path)", None),
    "empty file": ("os.makedirs(path); fd = os.open(path + '/model.safetensors', os.O_CREAT | os.O_WRONLY)", None),
    "half a file": ("os.makedirs(path); fd = os.open(path + '/model.safetensors', os.O_CREAT | os.O_WRONLY); os.write(fd, array[:1000])", None),
    "between files": (SAVE, FILES[:2]),
    "in the last file": (SAVE + "fd = os.open(path + '/optim.safetensors', os.O_CREAT | os.O_WRONLY); os.write(fd, array)", FILES[:2]),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_writers_step_is_never_listed(mount, world, neighbour, agent, ckptfs, store, moment):
    code, names = MOMENTS[moment]
    victims = {f"step_{n}": agent() for n in range(2, 2 + len(SIGNALS))}
    with watch(world, mount.path) as w:
        for (name, victim), sig in zip(victims.items(), SIGNALS):
            victim.run(code, path=str(mount / name), names=names, array=ARRAY)
            victim.run("signal.signal(sig, signal.SIG_DFL) if sig != signal.SIGKILL else None", sig=sig)
            victim.kill(sig)
            victim.wait_gone(30)
        for name in victims:
            told(mount, name, "was killed by signal")
        for name in victims:
            stays_hidden(mount, name, 9 if name == "step_2" else 0)
    w.check(1)
    if names:
        ckptfs("commit", store, "step_2")
        assert "step_2" in mount.listing()


@pytest.mark.parametrize("way", ["marker", "verb"])
def test_the_file_that_a_killed_writer_had_open_joins_no_step(mount, agent, save, ckptfs, store, way):
    """It is kept as a session; once somebody has written it again, it joins."""
    for name in ("step_1", "step_2"):
        victim, path = agent(), mount / name
        save(victim, name, FILES[:2])
        for torn in ("torn.bin", "again.bin"):
            victim.run("fd = os.open(file, os.O_CREAT | os.O_WRONLY); os.write(fd, array)", file=str(path / torn), array=ARRAY)
        victim.kill()
        victim.wait_gone(30)
        told(mount, name, "was killed by signal")
        trees.write(path / "again.bin", b"whole")
        if way == "marker":
            trees.write(path / ".finalize", b"")
        else:
            ckptfs("commit", store, name)
        assert sorted(os.listdir(path)) == sorted([*FILES[:2], "again.bin"])
        assert (path / "again.bin").read_bytes() == b"whole"
        told(mount, name, "torn.bin: a killed process had not written it to its end")
        [left] = [row for row in ckptfs.json("sessions", store) if row["name"] == name]
        assert left["state"] == "left"
        assert (mount / ".ckptfs/staged" / name / "torn.bin").read_bytes() == ARRAY
        # The step's own directory has no name of it any more.
        assert all(f.stat().st_nlink == 1 for f in store.glob("sessions/*/torn.bin"))
    mount.umount()
    mount.start()
    assert {row["state"] for row in ckptfs.json("sessions", store)} == {"left"}
    assert sorted(os.listdir(mount / "step_2")) == sorted([*FILES[:2], "again.bin"])


@pytest.mark.parametrize("end", ["kill", "exit 1"])
def test_a_step_that_has_all_is_listed_however_its_writer_ends(mount, world, neighbour, agent, save, end):
    writer = agent()
    with watch(world, mount.path) as w:
        save(writer, "step_2")
        if end == "kill":
            writer.kill()
            writer.wait_gone(30)
        else:
            assert writer.exit(1) == 1
        listed(mount, "step_2")
    w.check(2)


@pytest.mark.parametrize("status", [0, 1])
def test_how_the_writer_of_a_first_step_exits_decides(mount, agent, save, status):
    writer = agent()
    save(writer, "step_1")
    assert writer.exit(status) == status
    if status:
        told(mount, "step_1", "ended with exit status 1")
        stays_hidden(mount, "step_1", 9)
    else:
        listed(mount, "step_1")


def test_a_crash_in_a_thread_is_one_of_the_process(mount, agent, save):
    writer = agent()
    save(writer, "step_1")
    writer.start("signal.signal(signal.SIGABRT, signal.SIG_DFL); threading.Thread(target=os.abort).start(); time.sleep(60)")
    writer.wait_gone(30)
    told(mount, "step_1", "was killed by signal 6")
    stays_hidden(mount, "step_1", 8)


def test_of_two_writers_the_one_that_fails_decides(mount, agent, save):
    first, second = agent(), agent()
    save(first, "step_1", FILES[:2])
    save(second, "step_1", FILES[2:])
    assert first.exit(0) == 0
    stays_hidden(mount, "step_1", 2)
    assert second.exit(1) == 1
    told(mount, "step_1", "ended with exit status 1")
    stays_hidden(mount, "step_1", 8)


def test_a_child_that_writes_counts_for_itself(mount, neighbour, agent, save):
    """As megatron's and torch's asynchronous savers do: a forked child writes the file, and the parent goes on."""
    writer = agent()
    save(writer, "step_2", FILES[:1])
    code = """
pid = os.fork()
if not pid:
    with open(path, "wb") as f:
        f.write(array[:size])
    os.kill(os.getpid(), signal.SIGKILL) if size != len(array) else os._exit(0)
os.waitpid(pid, 0)
"""
    writer.run(code, path=str(mount / "step_2/model.safetensors"), array=ARRAY, size=len(ARRAY))
    writer.run(code, path=str(mount / "step_2/optim.safetensors"), array=ARRAY, size=2000)
    told(mount, "step_2", "was killed by signal 9")
    stays_hidden(mount, "step_2")


def test_a_descriptor_that_a_child_holds_keeps_the_file_open(mount, neighbour, agent, save):
    writer = agent()
    save(writer, "step_2", FILES[:2])
    child = writer.run("""
fd = os.open(path, os.O_CREAT | os.O_WRONLY)
os.write(fd, array)
pid = os.fork()
if not pid:
    time.sleep(600)
os.close(fd)
pid
""", path=str(mount / "step_2/optim.safetensors"), array=ARRAY)
    try:
        stays_hidden(mount, "step_2")
    finally:
        kill_quietly(child)
    listed(mount, "step_2")


def test_a_saver_that_begins_the_next_step_early(mount, world, neighbour, agent, save):
    writer = agent()
    with watch(world, mount.path) as w:
        save(writer, "step_2", FILES[:2])
        writer.run("fd = os.open(path, os.O_CREAT | os.O_WRONLY); os.write(fd, array[:3000])", path=str(mount / "step_2/optim.safetensors"), array=ARRAY)
        save(writer, "step_3")
        listed(mount, "step_3")
        stays_hidden(mount, "step_2", 2)
        writer.run("os.write(fd, array[3000:]); os.close(fd)", array=ARRAY)
        listed(mount, "step_2")
    w.check(3)


# --- Claimed by a framework ---------------------------------------------------------------------------------------------------------

def test_a_claimed_step_waits_for_its_event_while_its_writer_lives(mount, neighbour, agent, save, ckptfs, store):
    writer = agent()
    names = [*FILES, "training_args.safetensors"]
    save(writer, "step_2", names)
    writer.run("os.rename(a + '/training_args.safetensors', a + '/training_args.bin'); os.rename(a + '/optim.safetensors', a + '/optimizer.pt')",
               a=str(mount / "step_2"))
    stays_hidden(mount, "step_2")
    told(mount, "step_2", "is running")


@pytest.mark.parametrize("name", ["bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", ".snapshot_metadata"])
def test_each_file_that_claims_a_step_does_so_when_it_is_quiet(mount, neighbour, agent, save, name):
    writer = agent()
    save(writer, "step_2", [*FILES, "other.safetensors"])
    os.rename(mount / "step_2/other.safetensors", mount / "step_2" / name)
    stays_hidden(mount, "step_2")
    told(mount, "step_2", "is running")


# --- The end of a mount -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["ended", "whole", "lives"])
def test_an_orderly_end_completes_what_is_whole(mount, agent, save, ckptfs, store, how):
    writer = agent()
    if how == "whole":
        save(agent(), "step_1")
        ckptfs("commit", store, "step_1")
    mount.remount(options=["commit_quiet=1h"])
    save(writer, "step_2")
    if how == "ended":
        writer.exit(0)
    mount.remount()
    assert ("step_2" in mount.listing()) == (how != "lives")
    assert how == "lives" or event(ckptfs, store, "step_2") == "quiet"
