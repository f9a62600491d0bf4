"""What frameworks do last completes a step, without a marker (core/profile/profile.c), and what looks like it does not."""

import os
import subprocess
import threading
import time

import pytest

from support import trees
from support.commits import error_line
from support.fixtures import both_modes
from support.last_acts import (accelerate, axlearn, commit_file, completed_by, dcp, deepspeed, eformer, fill, hf_storage, info, levanter, lightning,
                               listed, megatron, nanotron, nemo, pickle_file, rank_file, snapshot, tracker, trainer)
from support.mounting import errno_name, wait_until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def options(request):
    """A commit waits for open writers a second here, and not five."""
    return ["open_writers=1s", *([request.param] if hasattr(request, "param") else [])]


WRITERS = [
    (megatron, "iter_0000100", "megatron", "close:metadata.json"),
    (megatron, "mymodel", "megatron", "close:metadata.json"),
    (trainer, "checkpoint-500", "hf-trainer", "close:trainer_state.json"),
    (accelerate, "checkpoint_3", "accelerate", "close:random_states_0.pkl"),
    (accelerate, "mymodel", "accelerate", "close:random_states_0.pkl"),
    (eformer, "run-100", "eformer", "close:metadata.json"),
    (eformer, "mymodel", "eformer", "close:metadata.json"),
    (levanter, "step-100", "levanter", "close:metadata.json"),
    (levanter, "mymodel", "levanter", "close:metadata.json"),
    (lightning, "last.ckpt", "lightning", "close:meta.pt"),
    (lightning, "epoch=0-step=10.ckpt", "lightning", "close:meta.pt"),
    (lightning, "epoch=0-step=10-v1.ckpt", "lightning", "close:meta.pt"),
    (hf_storage, "step-100", "hf-storage", "close:*.safetensors.index.json"),
    (axlearn, "step_00000010", "axlearn", "close:index"),
    (nanotron, "10", "nanotron", "close:latest.txt"),
    (snapshot, "step_5", "torchsnapshot", "close:.snapshot_metadata"),
    (snapshot, "mymodel", "torchsnapshot", "close:.snapshot_metadata"),
    (dcp, "step-100", "dcp", "rename:.metadata"),
    (dcp, "checkpoint-100", "dcp", "rename:.metadata"),
    (dcp, "mymodel", "dcp", "rename:.metadata"),
    (commit_file, "100", "orbax-commitfile", "close:commit_success.txt"),
    (deepspeed, "global_step20", "deepspeed", "close:latest"),
    (deepspeed, "mytag", "deepspeed", "close:latest"),
    (tracker, "global_step_7", "bytecheckpoint", "close:tracker"),
    (tracker, "iter_0000007", "megatron", "close:tracker"),
    (nemo, "epoch=0-step=10", "nemo", "unlink:*-unfinished"),
    (nemo, "megatron_gpt--step=10-samples=5.0", "nemo", "unlink:*-unfinished"),
]
writers = pytest.mark.parametrize("writer,name,profile,event", WRITERS, ids=[f"{w[2]}-{w[1]}" for w in WRITERS])


@both_modes
@writers
def test_last_act_of_a_framework_completes_its_step(mount, writer, name, profile, event):
    folder = str(mount / name)
    staged = name not in ("mymodel", "mytag", "last.ckpt") and not name.startswith("megatron_gpt")
    save = writer(folder)
    next(save)
    assert listed(mount) == []
    assert (name in os.listdir(mount.path)) == (not staged)
    before = trees.describe(folder)
    with pytest.raises(StopIteration):
        next(save)
    assert listed(mount) == [name]
    assert name in os.listdir(mount.path)
    assert completed_by(mount, name) == (profile, event)
    assert mount.errors() == []
    after = trees.describe(folder)
    assert {k: after[k] for k in before if k in after and k not in ("metadata.json", ".", "")} == \
           {k: v for k, v in before.items() if k in after and k not in ("metadata.json", ".", "")}
    mount.remount()
    assert trees.describe(folder) == after
    assert listed(mount) == [name]
    assert info(mount, name).get("temporary", False) == (profile in ("eformer", "levanter"))


@both_modes
@writers
def test_saving_anew_over_a_step_makes_its_next_version(mount, writer, name, profile, event):
    folder = str(mount / name)
    for _ in writer(folder):
        pass
    first = trees.describe(folder)
    for _ in writer(folder):
        pass
    assert listed(mount) == [name]
    assert completed_by(mount, name) == (profile, event)
    assert trees.describe(folder) != first
    assert len(info(mount, name)["versions"]) >= 2


# --- What is no end -----------------------------------------------------------------------------------------------------

STAGED = [(w, n) for w, n, _, _ in WRITERS if n in ("iter_0000100", "checkpoint-500", "checkpoint_3", "step_5")]
MARKERS = {"iter_0000100": "metadata.json", "checkpoint-500": "trainer_state.json", "checkpoint_3": "random_states_0.pkl", "step_5": ".snapshot_metadata"}


def start(mount, writer, name):
    save = writer(str(mount / name))
    next(save)
    return save, str(mount / name), os.path.join(str(mount / name), MARKERS[name])


@both_modes
@pytest.mark.parametrize("writer,name", STAGED, ids=[n for _, n in STAGED])
def test_an_empty_marker_completes_nothing_and_errors_says_what_to_do(mount, writer, name):
    save, folder, marker = start(mount, writer, name)
    trees.write(marker, b"")
    assert listed(mount) == []
    wait_until(mount.errors, what="a line in errors")
    error_line(mount, name, MARKERS[name], "empty or cut", "ckptfs commit")
    assert listed(mount) == []
    with pytest.raises(StopIteration):
        next(save)
    assert listed(mount) == [name], "the whole one, written after it, does"


@both_modes
@pytest.mark.parametrize("writer,name", STAGED[:3], ids=[n for _, n in STAGED[:3]])
def test_a_marker_that_is_cut_completes_nothing(mount, writer, name, agent):
    save, folder, marker = start(mount, writer, name)
    whole = {"metadata.json": b'{"sharded_backend": "torch_dist"}', "trainer_state.json": b'{"global_step": 500, "log": [1, 2]}'}
    pickle_file(str(mount / "whole.pkl"))
    content = whole.get(os.path.basename(marker)) or (mount / "whole.pkl").read_bytes()
    a = agent()
    for cut in (1, len(content) // 2, len(content) - 1):
        a.run("fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY); os.write(fd, data); os.close(fd)", path=marker, data=content[:cut])
        assert listed(mount) == []
    wait_until(mount.errors, what="a line in errors")
    error_line(mount, name, "empty or cut")
    a.run("fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY); os.write(fd, data); os.close(fd)", path=marker, data=content)
    wait_until(lambda: listed(mount) == [name], what="the step")
    mount.remount()
    with open(marker, "rb") as f:
        assert f.read() == content


@both_modes
@pytest.mark.parametrize("name,marker,text", [
    ("iter_0000100", "metadata.json", b'{"step": 5, "sharded": "zarr"}'),
    ("run-5", "metadata.json", b'{"step": -1, "timestamp": "now"}'),
    ("run-5", "metadata.json", b'{"keras_version": "3", "backend": "jax"}'),
    ("checkpoint_3", "trainer_state.json", b'{"global_step": 3}'),
    ("step_5", "trainer_state.json", b'{"global_step": 5}'),
    ("step_5", "commit_success.txt", b""),
    ("100", "commit_success.txt", b"done"),
    ("5.orbax-checkpoint-tmp", "commit_success.txt", b"done"),
    ("5.partial_save", ".snapshot_metadata", b"version: 1\n"),
    ("tmp-checkpoint-5", "trainer_state.json", b'{"global_step": 5}'),
    ("iter_0000100", "latest_checkpointed_iteration.txt", b"100"),
    ("global_step20", "latest", b"global_step20"),
], ids=lambda v: v if isinstance(v, str) else "")
def test_markers_of_another_framework_or_in_another_place_complete_nothing(mount, name, marker, text):
    fill(str(mount / name), "weights")
    trees.write(str(mount / name / marker), text)
    assert listed(mount) == []
    assert name not in os.listdir(mount.path)
    assert mount.errors() == []
    trees.write(str(mount / name / ".finalize"), b"")
    expect = ["5.orbax-checkpoint-tmp", "5.partial_save", "tmp-checkpoint-5"]
    assert listed(mount) == [name] or name in expect


@both_modes
def test_markers_deeper_in_a_step_complete_nothing(mount):
    folder = str(mount / "checkpoint-500")
    for path in ("pytorch_model_fsdp_0", "state"):
        fill(os.path.join(folder, path), "__0_0.distcp")
        trees.write(os.path.join(folder, path, ".metadata.tmp"), b"plan")
        os.rename(os.path.join(folder, path, ".metadata.tmp"), os.path.join(folder, path, ".metadata"))
        trees.write(os.path.join(folder, path, "trainer_state.json"), b"{}")
        trees.write(os.path.join(folder, path, ".snapshot_metadata"), b"version: 1\n")
    assert listed(mount) == []


@both_modes
@pytest.mark.parametrize("text", [b"nobody", b"../iter_0000100", b"", b"-1", b"99999999999999999999999", b"iter_0000100/x", bytes(2000), b"a\0b", b"\xff\xfe", b"global_step20 20"])
def test_trackers_that_name_no_step_are_ordinary_files(mount, text):
    for name in ("iter_0000100", "global_step20"):
        fill(str(mount / name), "mp_rank_00_model_states.pt")
    for tracker in ("latest", "latest_checkpointed_iteration.txt"):
        for _ in range(2):
            trees.write(str(mount / tracker), text)
            with open(mount / tracker, "rb") as f:
                assert f.read() == text
    assert listed(mount) == []
    assert mount.errors() == []


@both_modes
@pytest.mark.parametrize("tracker", ["new", "old"])
def test_a_tracker_that_is_not_written_completes_nothing_of_the_next_save(mount, agent, tracker):
    folder, latest = str(mount / "global_step20"), str(mount / "latest")
    if tracker == "old":
        trees.write(latest, b"nothing")
    fill(folder, "mp_rank_00_model_states.pt")
    a = agent()
    a.run("fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY); os.write(fd, b'global_step20')\n"
          "s = socket.socketpair(); socket.send_fds(s[0], [b'x'], [fd]); os.close(fd); spare = socket.recv_fds(s[1], 1, 1)[1][0]", path=latest)
    if tracker == "old":
        a.run("os.close(spare)")
    assert listed(mount) == ["global_step20"]
    trees.write(folder + "/mp_rank_00_model_states.pt", b"half of the next save")
    assert "global_step20" not in os.listdir(mount.path)
    if tracker == "new":
        a.run("os.close(spare)")
    os.utime(latest)
    subprocess.run(["touch", latest], check=True)
    with open(latest, "r+b") as f:
        assert f.read() == b"global_step20"
    assert "global_step20" not in os.listdir(mount.path)
    trees.write(latest, b"global_step20")
    assert listed(mount) == ["global_step20"]


def first_rank(mount, name, ranks=3):
    """DeepSpeed's rank 0 has written what is its own, and not yet `latest`."""
    (mount / name).mkdir()
    rank_file(mount / name / "mp_rank_00_model_states.pt", ranks)
    other_rank(mount, name, 0)


def other_rank(mount, name, rank):
    rank_file(mount / name / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")


SAY_LATEST = "fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644); os.write(fd, data); os.close(fd)"


@both_modes
@pytest.mark.parametrize("name", ["global_step20", "mytag"])
def test_ranks_that_are_slower_than_the_first_are_waited_for(mount, agent, name):
    """It says `latest` and waits for the others after that."""
    a = agent()  # which began before the save, as rank 0 does
    first_rank(mount, name)
    a.start(SAY_LATEST, path=str(mount / "latest"), data=name.encode())
    for rank in (1, 2):
        time.sleep(0.2)
        assert a.busy and listed(mount) == []
        other_rank(mount, name, rank)
    a.result(timeout=5)
    assert listed(mount) == [name] and info(mount, name)["files"] == 4
    assert completed_by(mount, name) == ("deepspeed", "close:latest")
    assert len(info(mount, name)["versions"]) == 1 and mount.errors() == []


@pytest.mark.parametrize("options", ["open_writers=1s"], indirect=True)
@pytest.mark.parametrize("name", ["global_step20", "mytag"])
def test_a_rank_that_comes_much_later_completes_the_step_by_its_file(mount, name):
    """The others' training does not end by an error for it; nothing is listed before."""
    first_rank(mount, name)
    other_rank(mount, name, 2)
    (mount / "latest").write_text(name)
    assert listed(mount) == []
    [line] = mount.errors()
    assert name in line and "zero_pp_rank_1_mp_rank_00_optim_states.pt" in line
    first_rank(mount, "global_step21", ranks=1)
    (mount / "latest").write_text("global_step21")
    assert listed(mount) == ["global_step21"], "the next save does not wait for it"
    other_rank(mount, name, 1)
    wait_until(lambda: name in listed(mount), timeout=10, what="its commit")
    assert info(mount, name)["files"] == 4 and len(mount.errors()) == 1


@pytest.mark.parametrize("options", ["open_writers=1s"], indirect=True)
def test_what_lacks_a_rank_at_the_end_of_its_mount_is_left_to_the_user(mount, ckptfs, store):
    first_rank(mount, "global_step20")
    (mount / "latest").write_text("global_step20")
    mount.remount()
    assert listed(mount) == [] and [s["state"] for s in mount.status()["staged"]] == ["interrupted"]
    ckptfs("commit", store, "global_step20")
    assert listed(mount) == ["global_step20"]


@both_modes
@pytest.mark.parametrize("name", ["global_step20", "mytag"])
def test_a_save_over_a_step_waits_for_ranks_whose_old_files_stand_there(mount, agent, name):
    first_rank(mount, name, ranks=2)
    other_rank(mount, name, 1)
    (mount / "latest").write_text(name)
    assert listed(mount) == [name]
    rank_file(mount / name / "mp_rank_00_model_states.pt", 2)
    other_rank(mount, name, 0)
    a = agent()
    a.start(SAY_LATEST, path=str(mount / "latest"), data=name.encode())
    time.sleep(0.5)
    assert a.busy and len(info(mount, name)["versions"]) == 1
    other_rank(mount, name, 1)
    a.result(timeout=5)
    assert len(info(mount, name)["versions"]) == 2 and mount.errors() == []


@pytest.mark.parametrize("options", ["commit_quiet=10s"], indirect=True)
def test_a_save_over_a_step_that_waits_for_a_rank_is_not_quiet(mount, options):
    first_rank(mount, "global_step20", ranks=2)
    other_rank(mount, "global_step20", 1)
    (mount / "latest").write_text("global_step20")
    first_rank_again = mount / "global_step20/mp_rank_00_model_states.pt"
    rank_file(first_rank_again, 2)
    other_rank(mount, "global_step20", 0)
    (mount / "latest").write_text("global_step20")
    time.sleep(3)
    assert len(info(mount, "global_step20")["versions"]) == 1
    other_rank(mount, "global_step20", 1)
    wait_until(lambda: len(info(mount, "global_step20")["versions"]) == 2, timeout=10, what="its commit")
    assert completed_by(mount, "global_step20") == ("deepspeed", "close:latest") and len(mount.errors()) == 1


def test_a_first_rank_that_is_killed_while_it_waits_had_written_its_last(mount, agent):
    """`latest` names the step, which is one when the others' files are there."""
    first_rank(mount, "global_step20")
    a = agent()
    a.start(SAY_LATEST, path=str(mount / "latest"), data=b"global_step20")
    time.sleep(2)
    a.kill()
    for rank in (1, 2):
        assert listed(mount) == []
        other_rank(mount, "global_step20", rank)
    wait_until(lambda: listed(mount) == ["global_step20"], timeout=10, what="its commit")
    assert info(mount, "global_step20")["files"] == 4


@both_modes
def test_a_tracker_does_not_turn_any_folder_into_a_step(mount):
    fill(str(mount / "notes"), "todo.txt")
    trees.write(str(mount / "latest"), b"notes")
    trees.write(str(mount / "notes-unfinished"), b"")
    os.unlink(mount / "notes-unfinished")
    assert not os.path.exists(mount / "notes-unfinished")
    assert listed(mount) == []
    trees.write(str(mount / "notes/more.txt"), b"x")


@both_modes
@pytest.mark.parametrize("writer,name", STAGED, ids=[n for _, n in STAGED])
def test_a_writer_that_is_killed_with_its_marker_open_completes_nothing(mount, writer, name, agent):
    save, folder, marker = start(mount, writer, name)
    whole = {"metadata.json": b'{"sharded_backend": "torch_dist"}', "trainer_state.json": b'{"global_step": 500}', ".snapshot_metadata": b"version: 1"}
    a = agent()
    a.run("fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY); os.write(fd, data)", path=marker, data=whole.get(os.path.basename(marker), b"PK"))
    a.kill()
    wait_until(lambda: not any(s["open_writers"] for s in mount.status()["staged"]), what="the kernel's close")
    assert listed(mount) == []
    wait_until(mount.errors, what="a line in errors")
    error_line(mount, name, MARKERS[name], "killed")
    mount.remount()
    assert listed(mount) == []
    assert [(s["name"], s["state"]) for s in mount.status()["staged"]] == [(name, "interrupted")]


@both_modes
@pytest.mark.parametrize("writer,name", STAGED, ids=[n for _, n in STAGED])
def test_a_forked_child_that_lets_go_of_the_marker_completes_nothing_and_holds_up_nothing(mount, writer, name, agent):
    save, folder, marker = start(mount, writer, name)
    pickle_file(str(mount / "whole.pkl"))
    whole = {"metadata.json": b'{"sharded_backend": "torch_dist"}', "trainer_state.json": b'{"global_step": 500}',
             ".snapshot_metadata": b"version: 1\nlocation: weights\n"}
    content = whole.get(os.path.basename(marker)) or (mount / "whole.pkl").read_bytes()
    a = agent()
    a.run("fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY); os.write(fd, data)", path=marker, data=content)
    a.run("pid = os.fork() or os._exit(0); os.waitpid(pid, 0)")
    assert listed(mount) == []
    a.run("import time; pid = os.fork() or (time.sleep(60), os._exit(0))")
    a.run("os.close(fd)")
    wait_until(lambda: listed(mount) == [name], what="the step")
    assert completed_by(mount, name)[1].startswith("close:")
    a.run("os.kill(pid, 9); os.waitpid(pid, 0)")
    assert len(info(mount, name)["versions"]) == 1


@both_modes
def test_writing_on_after_the_close_that_completed_makes_the_next_version(mount, agent):
    folder = str(mount / "iter_0000100")
    next(megatron(folder))
    a = agent()
    first, second = b'{"sharded_backend": "torch_dist"}', b'{"sharded_backend": "torch_dist", "more": 1}'
    a.run("fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_RDWR); os.write(fd, data)", path=folder + "/metadata.json", data=first)
    a.run("os.close(os.dup(fd))")
    assert listed(mount) == [], "it can still write the file"
    a.run("s = socket.socketpair(); socket.send_fds(s[0], [b'x'], [fd]); os.close(fd); fd = socket.recv_fds(s[1], 1, 1)[1][0]")
    assert listed(mount) == ["iter_0000100"]
    a.run("os.pwrite(fd, data, 0)", data=second)
    with open(folder + "/metadata.json", "rb") as f:
        assert f.read() == second
    a.run("os.close(fd)")
    mount.remount()
    with open(folder + "/metadata.json", "rb") as f:
        assert f.read() == second
    assert len(info(mount, "iter_0000100")["versions"]) == 2


@both_modes
def test_a_failed_commit_is_the_error_of_the_close_and_a_second_attempt_works(mount, agent):
    folder = str(mount / "checkpoint-500")
    save = trainer(folder)
    next(save)
    a, b = agent(), agent()
    b.run("fd = os.open(path, os.O_CREAT | os.O_WRONLY); os.write(fd, b'x')", path=folder + "/optimizer_1.pt")
    a.run("fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY); os.write(fd, b'{}')", path=folder + "/trainer_state.json")
    assert a.errno_of("os.close(fd)") == "EBUSY"
    assert listed(mount) == []
    error_line(mount, "checkpoint-500", "EBUSY", "optimizer_1.pt")
    b.run("os.close(fd)")
    with pytest.raises(StopIteration):
        next(save)
    assert listed(mount) == ["checkpoint-500"]
    assert (mount / "checkpoint-500/optimizer_1.pt").read_bytes() == b"x"


@pytest.mark.parametrize("options", ["commit_quiet=1s"], indirect=True)
@both_modes
def test_what_megatron_takes_out_of_its_step_is_an_edit(mount):
    folder = mount / "iter_0000100"
    for _ in megatron(str(folder)):
        pass
    trees.write(folder / ".metadata.tmp", b"smaller plan")
    os.rename(folder / ".metadata", folder / ".metadata.bck")
    os.rename(folder / ".metadata.tmp", folder / ".metadata")
    os.unlink(folder / "__0_0.distcp")
    os.unlink(folder / ".metadata.bck")
    assert listed(mount) == ["iter_0000100"]
    files = len(trees.files(folder))
    wait_until(lambda: info(mount, "iter_0000100")["files"] == files, what="the version without what was removed")
    assert info(mount, "iter_0000100")["profile"] == "megatron"
    mount.remount()
    assert sorted(os.listdir(folder)) == [".metadata", "common.pt", "metadata.json"]
    assert (folder / ".metadata").read_bytes() == b"smaller plan"


@pytest.mark.parametrize("options", ["commit_quiet=100ms"], indirect=True)
@both_modes
def test_a_save_over_a_step_of_megatron_that_dies_is_no_version(mount, agent):
    folder = mount / "iter_0000100"
    for _ in megatron(str(folder)):
        pass
    before = trees.files(folder)
    a = agent()
    a.run("fd = os.open(path, os.O_WRONLY | os.O_TRUNC); os.write(fd, b'half of the next save')", path=str(folder / "__0_0.distcp"))
    a.kill()
    wait_until(lambda: mount.listing() == ["iter_0000100"], what="the version of before")
    assert trees.files(folder) == before


@both_modes
def test_status_and_sessions_say_what_a_staged_step_waits_for(mount):
    awaited = {"checkpoint-500": "trainer_state.json", "checkpoint_3": "random_states_0.pkl", "iter_0000100": "metadata.json", "run-5": "metadata.json",
               "global_step20": "latest", "global_step_7": "latest_checkpointed_iteration.txt", "5.orbax-checkpoint-tmp": "rename", "100": ".finalize"}
    for name in awaited:
        fill(str(mount / name), "weights")
    rows = {row["name"]: row for row in mount.world.program.json("sessions", mount.store)}
    text = (mount / ".ckptfs/status").read_text()
    for name, word in awaited.items():
        assert word in rows[name]["awaits"]
        assert any(line.split()[:1] == [name] and word in line for line in text.splitlines())
    assert rows["checkpoint-500"]["profile"] == "hf-trainer"
    assert rows["100"]["profile"] is None


@both_modes
def test_opening_a_file_that_may_complete_while_its_last_release_is_under_way(mount):
    """The kernel sends the release when it likes, so that an open and the release before it come at once."""
    folder = mount / "mymodel"
    fill(str(folder), "common.pt")

    def write_often(n):
        for _ in range(2000):
            os.close(os.open(folder / "metadata.json", os.O_WRONLY | os.O_CREAT))

    threads = [threading.Thread(target=write_often, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(os.listdir(folder)) == ["common.pt", "metadata.json"] and listed(mount) == []
    trees.write(folder / "metadata.json", b'{"sharded_backend": "torch_dist"}')
    assert listed(mount) == ["mymodel"]


@both_modes
def test_an_open_of_a_tracker_whose_publication_waits_for_a_writer_of_the_step(mount, agent):
    """The publication commits the step, which waits for its writers."""
    run = mount / "run"
    fill(str(run / "global_step20"), "mp_rank_00_model_states.pt")
    trees.write(run / "latest", b"none")
    rank1, opener = agent(), agent()
    rank1.run("fd = os.open(path, os.O_WRONLY | os.O_CREAT); os.write(fd, b'half')", path=str(run / "global_step20/x_states.bin"))
    closing = threading.Thread(target=trees.write, args=(run / "latest", b"global_step20"))
    closing.start()
    time.sleep(0.3)
    opening = threading.Thread(target=opener.run, args=("fd = os.open(path, os.O_WRONLY); os.close(fd)",), kwargs={"path": str(run / "latest")})
    opening.start()
    time.sleep(0.3)
    rank1.run("os.close(fd)")
    for thread in (closing, opening):
        thread.join(20)
        assert not thread.is_alive(), "it hangs"
    assert listed(mount) == ["run/global_step20"] and (run / "latest").read_bytes() == b"global_step20"


@both_modes
def test_a_committed_marker_that_somebody_reads_is_not_written_in_place(mount, agent):
    folder = mount / "step_1"
    folder.mkdir()
    trees.write(folder / "weights", b"w")
    w, r = agent(), agent()
    w.run("fd = os.open(path, os.O_CREAT | os.O_WRONLY); os.write(fd, b'{\"user\": 1}')", path=str(folder / "metadata.json"))
    r.run("fd = os.open(path, os.O_RDONLY)", path=str(folder / "metadata.json"))
    w.run("os.close(fd)")
    trees.write(folder / ".finalize", b"")
    assert listed(mount) == ["step_1"]
    trees.write(folder / "metadata.json", b"GARBAGE")
    assert mount.listing() == []
    assert r.run("os.pread(fd, 100, 0)") == b'{"user": 1}'
    r.run("os.close(fd)")
    mount.kill9()  # an orderly end would commit the change
    mount.start()
    assert (folder / "metadata.json").read_bytes() == b'{"user": 1}'
    assert mount.world.program("verify", mount.store).returncode == 0


@both_modes
@pytest.mark.parametrize("flags", ["os.O_RDONLY", "os.O_WRONLY", "os.O_RDWR"])
def test_cutting_off_a_marker_works_while_the_step_is_committed(mount, agent, flags):
    """Opens in a loop while another closes the marker: nobody hangs, and what is committed is one state or the other."""
    folder = mount / "step_1"
    folder.mkdir()
    trees.write(folder / "metadata.json", b"123")
    trees.write(folder / "other.json", b"123")
    for name in ("metadata.json", "other.json"):
        os.close(os.open(folder / name, os.O_RDONLY | os.O_TRUNC))
        assert os.stat(folder / name).st_size == 0
    a = agent()
    a.run("import threading, time\n"
          "def loop():\n"
          "    for _ in range(50):\n"
          "        try:\n"
          f"            fd = os.open(path, {flags} | os.O_TRUNC); os.ftruncate(fd, 3) if {flags} else None; os.close(fd)\n"
          "        except OSError:\n"
          "            pass\n"
          "t = threading.Thread(target=loop); t.start()", path=str(folder / "metadata.json"))
    for _ in range(5):
        try:
            trees.write(folder / ".finalize", b"")
        except OSError as e:
            assert errno_name(e) in ("EBUSY", "ESTALE")
    a.run("t.join()")
    assert os.stat(folder / "metadata.json").st_size in (0, 3)


@both_modes
def test_writing_a_marker_does_not_wait_for_a_commit_that_waits_for_it(mount, agent):
    folder = mount / "step_1"
    folder.mkdir()
    a, b = agent(), agent()
    a.run("fd = os.open(path, os.O_CREAT | os.O_WRONLY); os.write(fd, b'{')", path=str(folder / "trainer_state.json"))
    b.run("import threading, time\n"
          "error = []\n"
          "def finalize():\n"
          "    try:\n"
          "        fd = os.open(path, os.O_CREAT | os.O_WRONLY); os.close(fd)\n"
          "    except OSError as e:\n"
          "        error.append(e.errno)\n"
          "t = threading.Thread(target=finalize); t.start(); time.sleep(0.5)", path=str(folder / ".finalize"))
    a.run("os.write(fd, b'}'); os.close(fd)")
    assert b.run("(t.join(), error)[1]") == []
    assert listed(mount) == ["step_1"]
    assert (folder / "trainer_state.json").read_bytes() == b"{}"


@both_modes
def test_a_marker_that_gets_another_name_while_it_is_open_is_written_on(mount, agent):
    for folder in (mount / "step_1", mount / "plain"):
        folder.mkdir()
        a = agent()
        a.run("fd = os.open(path, os.O_CREAT | os.O_WRONLY); os.write(fd, b'{')", path=str(folder / "metadata.json"))
        os.rename(folder / "metadata.json", folder / "m.json")
        a.run("os.close(os.dup(fd)); os.write(fd, b'}'); os.close(fd)")
        assert (folder / "m.json").read_bytes() == b"{}"
    assert listed(mount) == []


@both_modes
def test_marks_with_names_that_are_no_steps_are_removed_as_any_file(mount):
    (mount / "G/weights").mkdir(parents=True)
    for name in (".-unfinished", "..-unfinished", "-unfinished", "weights-unfinished"):
        trees.write(mount / "G" / name, b"")
        os.unlink(mount / "G" / name)
    assert os.listdir(mount / "G") == ["weights"]
    assert listed(mount) == []


@both_modes
def test_a_rename_that_cannot_complete_has_not_happened_and_a_second_one_does(mount, agent):
    folder = mount / "step_9"
    next(dcp(str(folder)))
    a = agent()
    a.run("fd = os.open(path, os.O_CREAT | os.O_WRONLY); os.write(fd, b'x')", path=str(folder / "shard"))
    with pytest.raises(OSError) as e:
        os.rename(folder / ".metadata.tmp", folder / ".metadata")
    assert errno_name(e.value) == "EBUSY"
    assert sorted(os.listdir(folder)) == [".metadata.tmp", "__0_0.distcp", "__1_0.distcp", "shard"]
    a.run("os.close(fd)")
    os.rename(folder / ".metadata.tmp", folder / ".metadata")
    assert listed(mount) == ["step_9"]


@both_modes
def test_a_rename_over_another_file_that_cannot_complete_leaves_both(mount, agent):
    folder = mount / "step_9"
    next(dcp(str(folder)))
    trees.write(folder / ".metadata", b"old")
    a = agent()
    a.run("fd = os.open(path, os.O_CREAT | os.O_WRONLY); os.write(fd, b'x')", path=str(folder / "shard"))
    for _ in range(2):
        with pytest.raises(OSError):
            os.rename(folder / ".metadata.tmp", folder / ".metadata")
        assert (folder / ".metadata").read_bytes() == b"old"
        assert (folder / ".metadata.tmp").read_bytes() == b"pickled"
    assert listed(mount) == []
    a.run("os.close(fd)")
    os.rename(folder / ".metadata.tmp", folder / ".metadata")
    assert listed(mount) == ["step_9"]
    assert (folder / ".metadata").read_bytes() == b"pickled"
    wait_until(lambda: not os.listdir(mount.store / "trash"), what="an empty trash")


@both_modes
def test_who_cleans_up_after_a_save_that_was_killed_does_not_complete_it(mount, agent):
    a = agent()
    a.run("open(path + '-unfinished', 'w').close(); os.mkdir(path); f = open(path + '/weights', 'wb'); f.write(b'half'); f.flush()", path=str(mount / "step_100"))
    a.kill()
    subprocess.run(["rm", str(mount / "step_100-unfinished")], check=True)
    assert listed(mount) == []
    assert mount.listing() == []


@both_modes
def test_folders_of_logs_and_parts_of_checkpoints_do_not_become_steps_by_a_guess(mount):
    fill(str(mount / "logs/eval"), "tensorstore_index.json")
    trees.write(mount / "logs/eval/metadata.json", b'{"step": 5, "timestamp": "now"}')
    fill(str(mount / "runs/run-3"), "train.log")
    trees.write(mount / "runs/run-3/metadata.json", b'{"step": 5}')
    fill(str(mount / "notes"), "todo")
    trees.write(mount / "notes/metadata.json", b'{"step": 5, "timestamp": "now"}')
    fill(str(mount / "mymodel/pytorch_model_fsdp_0"), "__0_0.distcp")
    trees.write(mount / "mymodel/pytorch_model_fsdp_0/.metadata.tmp", b"plan")
    os.rename(mount / "mymodel/pytorch_model_fsdp_0/.metadata.tmp", mount / "mymodel/pytorch_model_fsdp_0/.metadata")
    assert listed(mount) == []
    pickle_file(str(mount / "mymodel/random_states_0.pkl"))
    wait_until(lambda: listed(mount) == ["mymodel"], what="the step")
    assert mount.errors() == []


@both_modes
def test_nemo_with_its_weights_in_a_folder_of_their_own(mount):
    folder = mount / "nemo/model--step=7-last"
    folder.parent.mkdir()
    trees.write(str(folder) + "-unfinished", b"")
    for _ in megatron(str(folder / "weights")):
        pass
    fill(str(folder / "context"), "model.yaml")
    assert listed(mount) == []
    os.unlink(str(folder) + "-unfinished")
    assert listed(mount) == ["nemo/model--step=7-last"]


@pytest.mark.parametrize("options", ["steps_at=keep/*"], indirect=True)
@both_modes
def test_with_steps_at_no_other_folder_becomes_a_step_by_a_guess(mount):
    (mount / "keep").mkdir()
    for name in ("other", "keep/one"):
        for _ in dcp(str(mount / name)):
            pass
    assert listed(mount) == ["keep/one"]


# --- Copies, and the option -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("command", ["cp -r {src} {to}", "rsync -a {src} {to}/", "tar c -C {parent} {name} | tar x -C {to}"], ids=["cp", "rsync", "tar"])
@both_modes
def test_programs_that_copy_complete_nothing(mount, scratch, command):
    src = scratch / "checkpoint-500"
    for _ in trainer(str(src)):
        pass
    fill(str(src), "0_first", "zz_last")
    subprocess.run(command.format(src=src, to=mount.path, parent=scratch, name=src.name), shell=True, check=True)
    assert listed(mount) == []
    trees.write(str(mount / "checkpoint-500/.finalize"), b"")
    assert listed(mount) == ["checkpoint-500"]
    assert trees.files(mount / "checkpoint-500") == trees.files(src)


@pytest.mark.parametrize("options", ["profile=dcp:megatron"], indirect=True)
@both_modes
def test_profile_narrows_it_to_those_that_are_named(mount):
    for writer, name in ((trainer, "checkpoint-500"), (lambda f: accelerate(f, completes=False), "checkpoint_3"), (deepspeed, "global_step20"), (nemo, "epoch_1"), (dcp, "step-1"), (megatron, "iter_0000001")):
        for _ in writer(str(mount / name)):
            pass
    assert listed(mount) == ["iter_0000001", "step-1"]


@pytest.mark.parametrize("options", ["profile=generic"], indirect=True)
def test_profile_generic_leaves_only_the_marker(mount):
    for _ in megatron(str(mount / "iter_0000001")):
        pass
    assert listed(mount) == []
    trees.write(str(mount / "iter_0000001/.finalize"), b"")
    assert completed_by(mount, "iter_0000001") == ("generic", "marker")


def test_a_profile_that_does_not_exist_is_refused_with_the_names_that_do(world, store):
    done = world.program("mount", store, world.scratch, "-o", "profile=megaton", check=False)
    assert done.returncode == 2
    said = done.stderr.replace(",", " ").split()
    assert "megaton" in done.stderr and not {row[2] for row in WRITERS} - set(said)
    world.program("init", store)
    world.program("config", store, "profile=dcp:hf-trainer")
    assert world.program("config", store, "profile").stdout.strip() == "hf-trainer:dcp"
    assert world.program("config", store, "profile=none", check=False).returncode != 0
