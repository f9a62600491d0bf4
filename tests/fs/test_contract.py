"""The contract, sentence by sentence: what a user is told of the mount, and nothing about how it is kept.

Each test is named for the sentence that it shows. The depth is elsewhere: test_derive, test_reopen, test_amend, test_files,
test_commit_*, test_remove, test_move, test_latest. Not here, because not in this version: quotas, views of
arrays, and the markers of the frameworks themselves.
"""

import errno
import fcntl
import json
import mmap
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from support import trees
from support.commits import assert_whole, error_line
from support.mounting import errno_name, wait_until


def refused(call, *args, **kwargs):
    with pytest.raises(OSError) as e:
        call(*args, **kwargs)
    return errno_name(e.value)


def names(path):
    return sorted(os.listdir(path))


@pytest.fixture
def saved(mount, stage, commit):
    """A committed step, "1000", and its files."""
    made = stage("1000")
    commit(mount / "1000")
    return made


@pytest.fixture
def save(mount, stage, commit):
    def make(name, **kwargs):
        made = stage(name, **kwargs)
        commit(mount / name)
        return made
    return make


class TestWhatIsUnderTheMount:
    def test_everything_is_an_ordinary_live_kept_file_but_for_what_bears_a_steps_form(self, mount):
        (mount / "notes").mkdir()
        with open(mount / "notes/log.txt", "wb", buffering=0) as f:
            f.write(b"one\n")
            assert (mount / "notes/log.txt").read_bytes() == b"one\n", "seen while it is written"
        (mount / "4000").mkdir()
        assert mount.listing() == ["notes"]
        mount.kill9()
        mount.start()
        assert (mount / "notes/log.txt").read_bytes() == b"one\n"

    def test_a_staged_step_is_in_no_listing_and_reachable_by_its_exact_name(self, mount, stage):
        made = stage("1000")
        assert mount.listing() == []
        assert trees.files(mount / "1000") == made

    @pytest.mark.parametrize("name", ["1000.orbax-checkpoint-tmp", "5.orbax-checkpoint-tmp-1", "5.partial_save", "tmp-checkpoint-7"])
    def test_a_temp_form_is_staged_anywhere(self, mount, name):
        for folder in ("", "runs", "any/deep"):
            os.makedirs(mount / folder, exist_ok=True)
            (mount / folder / name).mkdir()
            assert name not in names(mount / folder)

    @pytest.mark.parametrize("name", ["checkpoint-7", "checkpoint_7", "ckpt-7", "ckpt_7", "step_7", "step-7", "step7", "iter_0000007", "global_step7",
                                      "global_step_7", "run-7", "epoch_7"])
    def test_a_prefixed_number_is_staged_anywhere_but_below_logs(self, mount, name):
        os.makedirs(mount / "a/b")
        (mount / "a/b" / name).mkdir()
        assert names(mount / "a/b") == []
        for logs in ("logs", "train_logs", "runs", "tensorboard", "wandb", "mlruns"):
            os.makedirs(mount / logs / "x")
            (mount / logs / "x" / name).mkdir()
            assert names(mount / logs / "x") == [name]

    def test_a_bare_number_is_staged_at_the_root_in_checkpoints_and_beside_a_step(self, mount, commit):
        for folder, staged in (("", True), ("checkpoints", True), ("ckpt", True), ("other", False), ("beside", True)):
            os.makedirs(mount / folder, exist_ok=True)
            if folder == "beside":
                (mount / folder / "step_1").mkdir()
                commit(mount / folder / "step_1")
            (mount / folder / "77").mkdir()
            assert ("77" not in names(mount / folder)) is staged

    @pytest.mark.parametrize("options", ["steps_at=best/*:final"], indirect=True)
    def test_steps_at_replaces_these_rules(self, mount):
        (mount / "best").mkdir()
        (mount / "best/model").mkdir()
        (mount / "final").mkdir()
        (mount / "1000").mkdir()
        assert mount.listing() == ["1000", "best"] and names(mount / "best") == []

    def test_a_marker_closed_in_a_plain_folder_turns_it_into_a_step(self, mount, commit, ckptfs, store):
        (mount / "final").mkdir()
        made = trees.fill(mount / "final")
        assert ckptfs.json("ls", store) == []
        commit(mount / "final")
        assert [s["name"] for s in ckptfs.json("ls", store)] == ["final"]
        assert_whole(mount, made, "final")

    def test_the_step_number_is_the_last_run_of_digits_in_the_name(self, mount, stage, commit, ckptfs, store):
        for name, number in (("iter_0000120", 120), ("ckpt-3-step_45", 45), ("final", None)):
            ckptfs("begin", store, name)
            trees.fill(mount / name)
            commit(mount / name)
            assert ckptfs.json("info", store, name)["number"] == number

    def test_latest_resolves_to_the_newest_committed_step_and_is_absent_from_readdir(self, mount, save):
        save("2000")
        made = save("1000")
        assert os.readlink(mount / "latest") == "1000" and trees.files(mount / "latest/") == made
        assert mount.listing() == ["1000", "2000"]

    @pytest.mark.parametrize("options", ["latest_by=step,show_latest"], indirect=True)
    def test_latest_by_step_is_the_highest_number_and_show_latest_lists_it(self, mount, save):
        save("2000")
        save("1000")
        assert os.readlink(mount / "latest") == "2000" and mount.listing() == ["1000", "2000", "latest"]

    def test_a_users_file_of_that_name_wins(self, mount, saved):
        trees.write(mount / "mine", b"1000\n")
        os.rename(mount / "mine", mount / "latest")
        assert (mount / "latest").read_bytes() == b"1000\n"

    def test_beside_staged_steps_of_a_profile_that_writes_one_there_is_no_latest_of_ours(self, mount, saved):
        assert os.path.islink(mount / "latest")
        (mount / "global_step5").mkdir()
        assert not os.path.lexists(mount / "latest")

    def test_the_control_directory_is_reachable_by_name_and_never_copied(self, mount, saved, scratch):
        assert {"status", "status.json", "errors", "staged", "trash", "conflicts"} <= set(names(mount / ".ckptfs"))
        assert names(mount / ".ckptfs/conflicts") == []
        subprocess.run(["cp", "-r", f"{mount.path}/.", scratch / "copy"], check=True)
        assert names(scratch / "copy") == ["1000"]

    def test_filesystem_type_in_the_mount_table_is_fuse_ckptfs(self, mount):
        with open("/proc/self/mounts", encoding="utf-8") as table:
            assert [line.split()[2] for line in table if line.split()[1] == str(mount.path)] == ["fuse.ckptfs"]


class TestStaging:
    def test_a_staged_step_is_a_full_posix_playground(self, mount, commit):
        step = mount / "1000"
        step.mkdir()
        fd = os.open(step / "data", os.O_CREAT | os.O_RDWR)
        os.pwrite(fd, b"tail", 1 << 20)
        os.pwrite(fd, b"head", 0)
        os.posix_fallocate(fd, 0, 2 << 20)
        os.rename(step / "data", step / "array")
        with mmap.mmap(fd, 2 << 20) as m:
            m[4096:4100] = b"maps"
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fchmod(fd, 0o640)
        os.utime(fd, ns=(5, 1_234_567_891))
        os.setxattr(fd, "user.k", b"v")
        os.link(step / "array", step / "same")
        os.symlink("array", step / "link")
        other = os.open(step / "gone", os.O_CREAT | os.O_RDWR)
        os.unlink(step / "gone")
        os.write(other, b"still")
        assert os.pread(other, 5, 0) == b"still"
        os.close(other)
        os.mkdir(step / "d")
        os.rename(step / "d", step / "e")
        os.close(fd)
        commit(step)
        for _ in range(2):
            st = os.stat(step / "array")
            data = (step / "same").read_bytes()
            assert (data[:4], data[4096:4100], data[1 << 20:][:4], len(data)) == (b"head", b"maps", b"tail", 2 << 20)
            assert (st.st_mode & 0o7777, st.st_mtime_ns, st.st_nlink) == (0o640, 1_234_567_891, 2)
            assert os.getxattr(step / "array", "user.k") == b"v" and os.readlink(step / "link") == "array" and (step / "e").is_dir()
            mount.remount()

    def test_the_final_name_is_enoent_while_only_its_temp_name_exists(self, mount):
        (mount / "5.partial_save").mkdir()
        assert names(mount / "5.partial_save") == [], "born empty"
        assert refused(os.stat, mount / "5") == "ENOENT"

    def test_begin_opens_a_session_by_hand_from_an_image_of_a_step_and_add_only_refuses_to_replace(self, mount, saved, ckptfs, store):
        ckptfs("begin", store, "--from", "1000", "--add-only", "best")
        assert trees.files(mount / "best") == saved and mount.listing() == ["1000"]
        assert refused(os.open, mount / "best/config.json", os.O_WRONLY) == "EEXIST"
        trees.write(mount / "best/more", b"x")
        assert refused(os.open, mount / "best/more", os.O_WRONLY | os.O_APPEND) == "EEXIST"
        ckptfs("commit", store, "best")
        assert_whole(mount, saved | {"more": b"x"}, "best")
        assert trees.files(mount / "1000") == saved

    def test_the_second_mkdir_has_eexist_and_a_client_restarted_goes_on_in_the_session(self, mount, agent, commit):
        a, b = agent(), agent()
        a.run("os.mkdir(p); open(p + '/half', 'wb').write(b'1')", p=str(mount / "1000"))
        assert b.errno_of("os.mkdir(p)", p=str(mount / "1000")) == "EEXIST"
        a.kill()
        b.run("open(p + '/half', 'ab').write(b'2')", p=str(mount / "1000"))
        commit(mount / "1000")
        assert_whole(mount, {"half": b"12"})

    def test_a_staged_step_is_what_it_was_after_a_restart(self, mount, stage, ckptfs, store):
        made = stage("1000")
        mount.kill9()
        mount.start()
        assert mount.listing() == [] and trees.files(mount / "1000") == made
        assert [s["state"] for s in ckptfs.json("sessions", store)] == ["interrupted"]
        assert refused(os.mkdir, mount / "1000") == "EEXIST"
        os.makedirs(mount / "1000", exist_ok=True)

    def test_a_folder_with_nothing_but_unfinished_steps_of_the_dead_is_removed(self, mount, stage, agent, ckptfs, store):
        (mount / "run").mkdir()
        stage("run/step_7")
        assert refused(os.rmdir, mount / "run") == "ENOTEMPTY", "its writer lives"
        mount.kill9()
        mount.start()
        a = agent()
        a.run("f = open(p + '/more', 'wb')", p=str(mount / "run/step_7"))
        assert refused(os.rmdir, mount / "run") == "ENOTEMPTY", "somebody writes"
        a.run("f.close()")
        assert refused(os.rmdir, mount / "run") == "ENOTEMPTY", "who wrote it lives"
        a.kill()
        a.wait_gone(30)
        wait_until(lambda: ckptfs.json("sessions", store)[0]["open_writers"] == 0, what="the release, which no close waits for")
        shutil.rmtree(mount / "run")
        assert mount.listing() == [] and [s["state"] for s in ckptfs.json("sessions", store)] == ["left"]
        assert "more" in names(mount / ".ckptfs/staged/step_7")
        (mount / "run").mkdir()
        assert names(mount / "run") == [] and not (mount / "run/step_7").exists()

    @pytest.mark.timeout(150)
    def test_only_temp_named_sessions_whose_writers_are_gone_expire_after_staging_ttl(self, mount, stage, ckptfs, store):
        stage("1000")
        stage("2000.orbax-checkpoint-tmp")
        mount.kill9()
        mount.options.append("staging_ttl=1s")
        time.sleep(1.1)
        mount.start()
        wait_until(lambda: [s["name"] for s in ckptfs.json("sessions", store)] == ["1000"], 90, "the temp-named one to expire")
        error_line(mount, "2000.orbax-checkpoint-tmp", "dropped")

    def test_umount_names_what_was_never_completed(self, mount, stage, ckptfs, store):
        stage("1000")
        assert "1000 is not complete yet" in ckptfs("umount", "--force", mount.path).stderr
        mount.kill9() if mount.alive() else None

    def test_ln_of_a_committed_file_references_it_with_an_inode_of_its_own_until_the_first_change(self, mount, saved):
        (mount / "2000").mkdir()
        (mount / "plain").mkdir()
        source = mount / "1000/config.json"
        for target in (mount / "2000/c", mount / "plain/c"):
            os.link(source, target)
            st = os.stat(target)
            assert st.st_nlink == 1 and st.st_ino != os.stat(source).st_ino and target.read_bytes() == saved["config.json"]
            with open(target, "ab") as f:
                f.write(b"more")
            assert target.read_bytes() == saved["config.json"] + b"more"
        assert trees.files(mount / "1000") == saved

    def test_cp_al_derives_a_checkpoint_without_moving_a_byte(self, mount, saved, commit, store):
        def stored():
            seen = {}
            for at, _, files in os.walk(store / "sessions"):
                for f in files:
                    st = os.lstat(os.path.join(at, f))
                    seen[st.st_ino] = st.st_blocks
            return sum(seen.values())
        before = stored()
        subprocess.run(["cp", "-al", mount / "1000", mount / "1001"], check=True)
        commit(mount / "1001")
        assert stored() - before <= 8, "a link is no data"
        assert_whole(mount, saved, "1001")

    def test_links_inside_one_session_are_ordinary_hard_links(self, mount):
        (mount / "1000").mkdir()
        trees.write(mount / "1000/a", b"1")
        os.link(mount / "1000/a", mount / "1000/b")
        trees.write(mount / "1000/b", b"22")
        assert (mount / "1000/a").read_bytes() == b"22" and os.stat(mount / "1000/a").st_nlink == 2


class TestCompletion:
    def test_closing_the_marker_commits_with_its_metadata_and_it_is_not_part_of_the_step(self, mount, stage, commit, ckptfs, store):
        made = stage("1000")
        commit(mount / "1000", json.dumps({"temporary": True, "extras": {"a": 1}, "metrics": {"loss": 2}, "world_size": 8}).encode())
        info = ckptfs.json("info", store, "1000")
        assert (info["temporary"], info["extras"], info["metrics"]) == (True, {"a": 1}, {"loss": 2})
        assert_whole(mount, made)

    def test_rename_from_a_temp_form_to_a_name_that_is_none_commits(self, mount, stage):
        made = stage("1000.orbax-checkpoint-tmp")
        os.rename(mount / "1000.orbax-checkpoint-tmp", mount / "1000")
        assert_whole(mount, made)

    def test_rename_of_a_staged_step_to_another_step_s_name_leaves_it_staged_and_to_a_plain_name_shows_it(self, mount, stage):
        made = stage("checkpoint-500")
        os.rename(mount / "checkpoint-500", mount / "checkpoint-501")
        assert mount.listing() == [] and trees.files(mount / "checkpoint-501") == made
        os.rename(mount / "checkpoint-501", mount / "checkpoint-501.bad")
        assert mount.listing() == ["checkpoint-501.bad"] and trees.files(mount / "checkpoint-501.bad") == made

    def test_rename_into_another_staged_step_moves_the_tree_there(self, mount, stage, commit):
        made = stage("5.partial_save.orbax-checkpoint-tmp")
        (mount / "5.partial_save").mkdir()
        os.rename(mount / "5.partial_save.orbax-checkpoint-tmp", mount / "5.partial_save/part")
        os.rename(mount / "5.partial_save", mount / "5")
        assert_whole(mount, {f"part/{path}": data for path, data in made.items()}, "5")

    def test_ckptfs_commit_is_the_way_for_those_that_have_no_event_and_save_does_both(self, mount, stage, ckptfs, store, scratch):
        made = stage("1000")
        ckptfs("commit", store, "1000")
        (scratch / "out").mkdir()
        other = trees.fill(scratch / "out", seed=2)
        ckptfs("save", store, scratch / "out", "2000")
        assert trees.files(mount / "1000") == made and trees.files(mount / "2000") == other

    def test_after_close_returned_0_the_step_is_durable_listed_and_survives_any_crash(self, mount, save):
        made = save("1000")
        mount.kill9()
        mount.start()
        assert_whole(mount, made)

    def test_on_failure_close_has_the_errno_errors_says_what_to_do_and_a_second_attempt_works(self, mount, stage, commit):
        made = stage("1000")
        assert refused(commit, mount / "1000", b"{not json") == "EINVAL"
        error_line(mount, "1000", "EINVAL", "write the marker again")
        assert mount.listing() == [] and trees.files(mount / "1000") == made
        commit(mount / "1000")
        assert_whole(mount, made)


class TestAfterCommit:
    def test_new_files_are_an_amend_each_appears_at_its_close_as_a_new_version(self, mount, saved, ckptfs, store):
        with open(mount / "1000/rng_state_7.pth", "wb", buffering=0) as f:
            f.write(b"late")
            assert "rng_state_7.pth" not in names(mount / "1000")
        assert "rng_state_7.pth" in names(mount / "1000")
        assert ckptfs.json("info", store, "1000")["version"] == 2
        mount.kill9()
        mount.start()
        assert_whole(mount, saved | {"rng_state_7.pth": b"late"})

    @pytest.mark.parametrize("change", ["append", "truncate", "overwrite"])
    def test_the_first_change_takes_the_step_out_of_listing_and_latest_and_it_stays_reachable_with_the_changes(self, mount, save, saved, change):
        file = mount / "1000/config.json"
        {"append": lambda: file.open("ab").write(b"more"), "truncate": lambda: os.truncate(file, 1), "overwrite": lambda: trees.write(file, b"new")}[change]()
        assert mount.listing() == [] and not os.path.lexists(mount / "latest")
        data = saved["config.json"]
        saved["config.json"] = {"append": data + b"more", "truncate": data[:1], "overwrite": b"new"}[change]
        assert trees.files(mount / "1000") == saved

    def test_a_file_that_is_renamed_leaves_the_step_listed(self, mount, saved):
        os.rename(mount / "1000/config.json", mount / "1000/other")
        saved["other"] = saved.pop("config.json")
        assert_whole(mount, saved)
        mount.remount()
        assert_whole(mount, saved)

    def test_a_file_that_is_removed_stays_gone_and_the_step_listed(self, mount, saved, ckptfs, store):
        os.unlink(mount / "1000/config.json")
        del saved["config.json"]
        assert mount.listing() == ["1000"] and trees.files(mount / "1000") == saved
        wait_until(lambda: ckptfs.json("info", store, "1000")["version"] == 2, 10, "the edit")
        assert_whole(mount, saved)

    def test_a_reopened_step_ends_by_its_completion_event_and_the_old_version_goes_to_trash(self, mount, saved, commit):
        trees.write(mount / "1000/config.json", b"new")
        commit(mount / "1000")
        assert_whole(mount, saved | {"config.json": b"new"})
        assert trees.files(mount / ".ckptfs/trash/1000") == saved

    def test_a_reopened_step_ends_by_rmdir_which_deletes_it_in_one_act(self, mount, saved):
        trees.write(mount / "1000/config.json", b"new")
        shutil.rmtree(mount / "1000")
        assert mount.listing() == []
        mount.remount()
        assert mount.listing() == [] and trees.files(mount / ".ckptfs/trash/1000") == saved

    @pytest.mark.parametrize("options", ["commit_quiet=1s"], indirect=True)
    def test_a_reopened_step_that_is_quiet_is_the_next_version(self, mount, saved):
        trees.write(mount / "1000/config.json", b"new")
        wait_until(lambda: mount.listing() == ["1000"], 10, "the new version")
        assert_whole(mount, saved | {"config.json": b"new"})
        assert trees.files(mount / ".ckptfs/trash/1000") == saved

    @pytest.mark.parametrize("options", ["commit_quiet=1s"], indirect=True)
    def test_a_reopened_step_whose_writer_is_killed_is_back_whole_and_the_changes_are_kept(self, mount, saved, agent):
        a = agent()
        a.run("fd = os.open(path, os.O_WRONLY | os.O_TRUNC); os.write(fd, b'new')", path=str(mount / "1000/config.json"))
        a.kill()
        wait_until(lambda: mount.listing() == ["1000"], 10, "the step to be back")
        assert trees.files(mount / "1000") == saved
        assert (mount / ".ckptfs/staged/1000/config.json").read_bytes() == b"new"
        error_line(mount, "1000", "the previous version is restored")

    def test_a_restart_brings_the_version_of_before_back_whole(self, mount, saved):
        trees.write(mount / "1000/config.json", b"new")
        mount.kill9()
        mount.start()
        assert_whole(mount, saved)
        assert (mount / ".ckptfs/staged/1000/config.json").read_bytes() == b"new"
        error_line(mount, "1000", "the previous version is restored")

    @pytest.mark.parametrize("options", ["amend=deny"], indirect=True)
    def test_amend_deny_allows_deletion_only(self, mount, saved):
        assert refused(trees.write, mount / "1000/new", b"") == "EROFS"
        assert refused(trees.write, mount / "1000/config.json", b"") == "EROFS"
        assert refused(os.rename, mount / "1000/config.json", mount / "1000/x") == "EROFS"
        shutil.rmtree(mount / "1000")
        assert mount.listing() == []

    def test_deleted_steps_go_to_trash_and_undelete_has_them_back(self, mount, saved, ckptfs, store):
        shutil.rmtree(mount / "1000")
        assert names(mount / ".ckptfs/trash") == ["1000"]
        ckptfs("undelete", store, "1000")
        assert_whole(mount, saved)

    def test_mv_renames_a_committed_step_atomically_also_into_a_plain_folder_and_into_a_staged_step_is_exdev(self, mount, saved):
        os.rename(mount / "1000", mount / "2000")
        (mount / "best").mkdir()
        os.rename(mount / "2000", mount / "best/2000")
        assert_whole(mount, saved, "best/2000") if False else None
        assert trees.files(mount / "best/2000") == saved and mount.listing() == ["best"]
        (mount / "3000").mkdir()
        assert refused(os.rename, mount / "best/2000", mount / "3000/in") == "EXDEV"

    def test_open_handles_keep_the_bytes_they_opened(self, mount, saved, commit):
        path = "params/layer_0/w0.bin"
        with open(mount / "1000" / path, "rb") as old:
            trees.write(mount / "1000" / path, b"new")
            commit(mount / "1000")
            shutil.rmtree(mount / "1000")
            assert old.read() == saved[path]

    def test_files_keep_modes_owners_and_times_and_inode_numbers_are_stable(self, mount, stage, commit):
        stage("1000")
        os.chmod(mount / "1000/config.json", 0o604)
        os.utime(mount / "1000/config.json", ns=(1, 1_500_000_000_123_456_789))
        commit(mount / "1000")
        before = trees.describe(mount / "1000", inodes=True)
        made = os.stat(mount / "1000").st_mtime_ns
        assert before["config.json"] and os.stat(mount / "1000/config.json").st_mtime_ns == 1_500_000_000_123_456_789
        mount.remount()
        os.rename(mount / "1000", mount / "2000")
        assert trees.describe(mount / "2000", inodes=True) == before
        trees.write(mount / "2000/late", b"")
        assert os.stat(mount / "2000").st_mtime_ns == made, "the time of its first version"

    def test_statfs_is_true_and_st_blocks_is_that_of_the_logical_size(self, mount, saved, store):
        ours, disk = os.statvfs(mount.path), os.statvfs(store)
        assert (ours.f_blocks, ours.f_frsize) == (disk.f_blocks, disk.f_frsize)
        for path, data in saved.items():
            assert os.stat(mount / "1000" / path).st_blocks == (len(data) + 511) // 512


class TestControlDirectory:
    def test_status_and_errors_are_plain_text_and_status_json_is_json(self, mount, saved):
        assert re.search(r"\S", (mount / ".ckptfs/status").read_text())
        assert json.loads((mount / ".ckptfs/status.json").read_text())["passthrough"] in (True, False)
        assert (mount / ".ckptfs/errors").read_text() == ""

    def test_control_files_can_be_read_by_all_and_written_by_nobody(self, mount):
        for name in ("status", "status.json", "errors"):
            assert os.stat(mount / ".ckptfs" / name).st_mode & 0o7777 == 0o444
            assert refused(os.open, mount / ".ckptfs" / name, os.O_WRONLY) in ("EACCES", "EPERM")
