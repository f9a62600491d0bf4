"""Mistakes chosen by hand: what somebody could get wrong, beyond a call that is left out.

A row names the place, FILE:FUNCTION, and which words of that function become which others. Words are C tokens: it does not
matter how lines are broken, what comments say, or where in its file the function stands.
"""

import dataclasses

import source
from mistake import Mistake, Wrong


@dataclasses.dataclass
class Row:
    name: str
    where: str  # FILE:FUNCTION
    old: str    # its tokens stand there exactly once
    new: str
    suites: tuple  # tried in this order until one fails; FILE::TEST is one test of a pytest file


CRASH = "crash_test_commit"
FAULTS = "test_commit_faults"
CRASH_DELETE = "crash_test_delete"
CRASH_GC = "crash_test_gc"
DELETE_FAULTS = "test_delete_faults"
AMEND_FAULTS = "test_amend_faults"
GC_FAULTS = "test_gc_faults"

TABLE = [
    Row("failed-fsync-retried", "core/commit/commit.c:sync_path",
        "ckpt_stage_synced(a->step, u->ino, 0, 0, rc)", "(void)0", (FAULTS,)),
    Row("rename-for-link", "backends/local.c:publish_link",
        "link(l->tmp, stage->name, parent_fd, at->leaf", "rename(l->tmp, stage->name, parent_fd, at->leaf, 0", ("test_backend", "test_commit")),
    Row("eexist-ignored", "core/commit/publish.c:ckpt_attempt_publish",
        "return -EEXIST", "return 0", ("test_commit",)),
    Row("gate-open-while-committing", "core/stage/stage.c:ckpt_stage_enter",
        "step->state == CKPT_STEP_COMMITTING", "0", ("test_commit",)),
    Row("changes-not-waited-for", "core/commit/commit.c:wait_for_writers_locked",
        "step->changers ||", "", ("test_commit",)),
    Row("writers-not-waited-for", "core/commit/commit.c:wait_for_writers_locked",
        "|| (any_to_wait_for_locked(a) && step->state == CKPT_STEP_COMMITTING)", "", ("test_commit",)),
    Row("late-file-forgotten", "core/commit/commit.c:enter_committed_locked",
        "ckpt_amend_expected_locked(step);", "", ("test_commit_late",)),
    Row("leftover-not-copied", "core/stage/scan.c:is_leftover",
        "true", "false", ("test_commit_leftovers",)),
    Row("thaws-when-unknown", "core/commit/commit.c:finish",
        "rc && a->unknown", "false", ("test_commit", FAULTS)),
    Row("resolve-without-sync", "core/commit/publish.c:ckpt_attempt_resolve",
        "ckpt_backend_put(a->step->store->backend, object, data, len, NULL) == -EEXIST ? 0 : -EIO", "0", (FAULTS, CRASH)),
    Row("name-not-reserved", "core/store/step.c:reserved_by_another_locked",
        "p->step != step", "!p", ("test_commit",)),
    Row("key-not-compared", "core/store/load.c:read_summary",
        "|| ckpt_name_key(r.summary.folder_id, r.summary.name, key) || strcmp(key, ref->key)", "", ("test_load",)),
    Row("second-save-has-the-number-of-its-version", "core/record/name.c:ckpt_name_number",
        'ckpt_name_matches("*#-v#.ckpt", name)', "false", ("test_name",)),
    Row("quiet-edit-is-the-latest", "core/commit/publish.c:fill_summary",
        "a->keeps_place ? a->step->base->summary.sequence : ++store->sequence", "++store->sequence", ("test_reopen",)),
    Row("re-save-has-the-time-of-an-edit", "core/commit/reopen.c:quiet_ns",
        "!__atomic_load_n(&step->rewritten, __ATOMIC_RELAXED)", "true", ("test_reopen",)),
    Row("cut-off-re-save-is-committed", "core/commit/changes.c:look_at_file",
        "l->changes->cut_off = true", "l->changes->cut_off = false", ("test_reopen",)),
    Row("changes-of-a-killed-writer-are-committed", "core/commit/reopen.c:end_quietly",
        "was_killed_in_file(step) ||", "", ("test_reopen",)),
    Row("marks-of-a-killed-process-are-an-edit", "core/commit/remove_end.c:decide",
        "e->status.state == CKPT_PROCESS_KILLED ||", "", ("test_remove",)),
    Row("stopped-removal-hides-for-good", "core/commit/remove_end.c:decide",
        "by->stopped_ns && now - by->stopped_ns >= MINUTE_NS ? DROPPED : WAITS", "WAITS", ("test_remove",)),
    Row("each-unlink-is-rm-r", "core/commit/remove.c:ckpt_remove_entry",
        "ckpt_sys.mono_ns() - MINUTE_NS", "0", ("test_remove",)),
    Row("deletion-means-the-last-edit", "core/commit/remove.c:ckpt_remove_whole",
        "version_before(step)", "0", ("test_remove",)),
    Row("marks-forget-their-paths", "core/commit/remove.c:ckpt_remove_carry",
        "&& !ckpt_removal_rebase_locked(step, is) && !any_is_in(r, is)", "", ("test_remove",)),
    Row("killed-between-files-is-a-re-save", "core/commit/reopen.c:end_quietly",
        "changes.rewritten && makers.killed", "false", ("test_fs_reopen::test_writer_that_is_killed_between_files_has_written_each_array_or_none",)),
    Row("folder-id-not-durable", "core/store/store_folder.c:folder_sync",
        "folder_is_synced(s, id) ? 0 : sync_upwards(s, dirfd)", "0", (CRASH,)),
    Row("written-after-the-record", "core/commit/commit.c:attempt_run",
        "rc = write_out(a); if (rc) return rc;", "", (CRASH,)),
    Row("clean-whatever-the-time", "core/stage/stage.c:ckpt_stage_is_clean",
        "&& f->ctime_ns == ctime_ns", "", ("test_stage",)),
    Row("version-given-again", "core/commit/delete.c:reserve",
        "ckpt_step_versions_used_locked(step->store, step->folder_id, step->name)", "step->deleted_by", (DELETE_FAULTS, CRASH_DELETE)),
    Row("another-session-expires-too", "core/commit/delete.c:remove_if",
        "!strcmp(r.summary.session, step->session)", "true", (DELETE_FAULTS, CRASH_DELETE)),
    Row("expires-though-undeleted", "core/commit/delete.c:check_deleted",
        "rc == -EEXIST || rc == -ENOENT ? 0 : rc ? rc : -ESTALE", "0", (DELETE_FAULTS,)),
    Row("undelete-asked-once", "core/commit/delete.c:put_again",
        "rc == -EEXIST ? read_undeletion(step, version, ret_summary) :", "", (DELETE_FAULTS,)),
    Row("temporary-deleted-though-promoted", "core/commit/delete.c:mark_deleted",
        "if (d->temporary && !r->summary.temporary) return 1;", "", ("test_temporary",)),
    Row("metrics-win-over-the-marker", "core/record/metadata.c:ckpt_metadata_merge",
        "json_object_update_missing", "json_object_update", ("test_metadata", "test_metadata_staged")),
    Row("lost-answer-of-an-amend-forgotten", "core/commit/edit.c:ckpt_edit_put",
        "__atomic_store_n(&step->amend_unknown, true, __ATOMIC_RELAXED)", "(void)0", (AMEND_FAULTS, "test_amend")),
    Row("seal-of-bytes-that-were-replaced", "core/tier/seal.c:find_anew",
        "e.ino == was_e.ino &&", "", ("test_seal",)),
    Row("seal-of-what-was-not-read", "core/record/manifest_seals.c:ckpt_manifest_is_sealed",
        "==", "> 0 || !", ("test_seal",)),
    Row("half-a-file-is-enough", "core/tier/seal.c:result_of",
        "MIN", "MAX", ("test_seal_readers",)),
    Row("damage-not-compared", "tools/check.c:compare_chunks",
        "chunk.id", "is", ("test_fs_seal::test_verify_finds_each_flipped_byte_of_what_is_sealed",)),
    Row("cold-damage-not-told", "tools/check.c:check_packed",
        "rc && !damaged++", "!rc && damaged++ && rc", ("test_fs_cool::test_a_cooled_step_is_what_it_was",)),
    Row("chunks-that-know-no-arrays", "core/tier/seal.c:read_chunks",
        "ckpt_cuts_next(&cuts, at", "(uint32_t)MIN(bytes - at, (uint64_t)CKPT_CHUNK_BYTES", ("test_seal",)),
    Row("arrays-over-each-other", "core/array/array.c:check_places",
        "row->offset < end", "(row->offset < end && !end)", ("test_array_safetensors",)),
    Row("shape-that-wraps-to-nothing", "core/array/array.c:ckpt_array_elements",
        "__builtin_mul_overflow(product, shape[i], &product) || product", "(product *= shape[i])", ("test_array", "test_array_safetensors")),
    Row("header-of-any-length", "core/array/array_safetensors.c:ckpt_arrays_safetensors",
        "|| len > CKPT_ARRAY_HEADER_MAX", "", ("test_array_safetensors",)),
    Row("gc-believes-memory", "core/gc/gc.c:collect",
        "ckpt_gc_mark_strangers(g)", "0", ("test_gc", GC_FAULTS)),
    Row("gc-of-what-is-in-the-trash", "core/gc/gc_mark.c:take_summary",
        "moved", "deleted_by", ("test_gc", CRASH_GC)),
    Row("gc-of-what-is-open", "core/gc/gc.c:collect",
        "ckpt_gc_mark_open_files(g)", "0", ("test_gc",)),
    Row("gc-of-what-cannot-be-read", "core/gc/gc.c:check_store",
        "unreadable_count", "unreadable_count > 1000", ("test_gc",)),
    Row("dedupe-without-reading-back", "core/tier/dedupe.c:ckpt_dedupe_find",
        "!ckpt_pack_read(s->backend, ret_pack, ret_found, codec, base, plain)", "codec && plain", ("test_dedupe",)),
    Row("dedupe-without-asking-for-durability", "core/tier/cool.c:share_packed",
        "ckpt_packing_has(&c->packing, &pack) && !ckpt_dedupe_is_durable(s, &pack)", "s", (CRASH_GC,)),
    Row("base-of-any-depth", "core/record/manifest_seals.c:bases_ok",
        "CKPT_BASE_DEPTH_MAX", "1000", ("test_manifest_base",)),
    Row("cached-chunk-of-another-length", "core/tier/chunk_cache.c:find_locked",
        "(c->bytes != chunk->bytes || memcmp(c->id, chunk->id, CKPT_SHA256_LEN)", "memcmp(c->id, chunk->id, CKPT_SHA256_LEN", ("test_chunk_cache",)),
    Row("repack-without-comparing", "core/gc/repack.c:read_stored",
        "memcmp(id, chunk->id, sizeof(id)) ? -EBADMSG : 0", "rc", ("test_repack",)),
    Row("repack-into-what-may-not-be-durable", "core/gc/repack.c:share_chunk",
        "ckpt_packing_has(&r->packing, &pack) && !ckpt_dedupe_is_durable(r->store, &pack)", "r->store", ("test_repack",)),
    Row("gc-by-versions-that-may-not-stay", "core/gc/gc.c:collect",
        "make_durable(g)", "0 ? make_durable(g) : 0", (CRASH_GC,)),
    Row("sweep-by-a-version-that-may-not-stay", "core/tier/cool_sweep.c:sweep_some",
        "ckpt_version_make_durable(w->step) ||", "", (CRASH_GC,)),
    Row("conversion-not-taken-back", "core/store/store.c:store_open_parts",
        "ckpt_convert_settle(s)", "0", ("test_convert",)),
    Row("second-frame-taken", "core/codec/codec_zstd.c:ckpt_zstd_decode",
        "ZSTD_findFrameCompressedSize(stored, stored_bytes) != stored_bytes", "stored_bytes == 0", ("test_codec",)),
    Row("input-taken-past-its-end", "core/codec/codec_plane.c:ckpt_input_take",
        "if (in->left < count) return NULL;", "", ("test_codec",)),
    Row("cools-what-is-pinned", "core/tier/cooler.c:look_at",
        "&& !sum->pinned", "", ("test_cooler",)),
    Row("first-yes-wins-over-a-permanent-one", "core/policy/decide.c:ask_any",
        "best < CKPT_DECIDE_PERMANENT;", "!best;", ("test_decide",)),
    Row("newest-step-is-not-kept", "core/policy/preserve.c:judge",
        "|| newest", "", ("test_preserve",)),
    Row("decision-outlives-a-rollback", "core/policy/decided.c:ckpt_decided_find",
        "latest < found->latest", "false", ("test_decided",)),
    Row("policy-set-over-any-other", "core/policy/policy_store.c:ckpt_policy_put_object",
        "-ESTALE", "0", ("test_should_save",)),
    Row("program-of-a-policy-that-others-write", "core/policy/policy_store.c:is_written_by_us_alone",
        "!(st.st_mode & (S_IWGRP | S_IWOTH))", "true", ("test_fs_should_save::test_no_program_is_run_that_somebody_else_could_have_set",)),
    Row("shared-files-are-work", "core/stage/limit.c:add_file",
        "ckpt_share_is(dirfd, name, stx", "(ckpt_share_is(dirfd, name, stx) && !name", ("test_limit",)),
    Row("limit-refuses-what-makes-room", "fs/limit.c:ends_step",
        "node_is_top(dir)", "!dir", ("test_fs_limit::test_a_commit_works_and_makes_room_at_once",)),

    # Rules of the contract: what is staged
    Row("run-folder-stays-hidden", "fs/unstage.c:unstage_is_shown_by",
        "!names_step(fs, dir, name, &shown) && shown", "false", ("test_fs_run_folder::test_a_step_that_is_made_in_it_shows_a_run_s_folder",)),
    Row("part-of-a-step-shows-a-run", "fs/unstage.c:unstage_is_shown_by",
        "|| is_part_of(name, is.name)", "", ("test_fs_run_folder::test_directories_that_belong_to_a_step_show_nothing",)),
    Row("run-with-a-log-becomes-a-step", "fs/complete.c:look_for_log",
        "ckpt_tracker_is_log(name)", "!name", ("test_fs_commit_rename::test_a_folder_that_is_a_run_s_stays_plain_under_a_step_s_name",)),
    Row("folder-of-several-saves-becomes-a-step", "fs/one_save.c:look_at",
        "(made && made < l->since_ns) || ns_of(stx->stx_mtime) < l->since_ns", "false && made",
        ("test_fs_profiles::test_a_folder_with_files_of_another_process_or_of_another_time_stays_plain",)),
    Row("unfinished-step-forgets-that-it-was-interrupted", "core/stage/stage_restart.c:restart_all",
        "mark_found(steps[i]);", "", ("test_stage_restart",)),
    Row("older-of-two-sessions-is-staged", "core/stage/stage_restart.c:by_name_and_age",
        "(x->began_ns < y->began_ns) - (x->began_ns > y->began_ns)", "(x->began_ns > y->began_ns) - (x->began_ns < y->began_ns)", ("test_stage_restart",)),
    Row("name-is-taken-from-who-still-writes", "core/stage/stage_restart.c:is_idle_locked",
        "!step->writers &&", "", ("test_stage_restart",)),
    Row("left-over-expires-though-nothing-replaced-it", "core/stage/stage_usage.c:supersedes",
        "committed_ns > changed_ns &&", "", ("test_stage_restart",)),

    # What completes a step
    Row("empty-marker-of-a-shell-completes", "fs/marker.c:marker_flush",
        "&& !is_about_to_be_written(h, tid)", "", ("test_fs_commit_rules::test_shells_complete_a_step",)),
    Row("event-without-array-data", "fs/complete.c:check_arrays",
        "rc == 1 ? 0 : rc ? rc : -ENOENT", "MIN(rc, 0)", ("test_fs_profiles::test_without_array_data_no_event_counts",)),
    Row("copy-is-a-save", "fs/complete.c:unfinished",
        "!__atomic_load_n(&step->copied, __ATOMIC_RELAXED)", "true", ("test_fs_profiles::test_a_tree_that_is_copied_with_its_times_is_no_save",)),
    Row("text-is-array-data", "core/array/data.c:is_text",
        "at == l->len ||", "false &&", ("test_data",)),
    Row("any-file-is-array-data", "core/array/data.c:is_large",
        "CKPT_DATA_LARGE_BYTES", "0", ("test_data",)),
    Row("stopped-writer-is-not-waited-for", "core/stage/quiet.c:obstacle",
        "if (f->stopped)", "if (0)", ("test_quiet",)),
    Row("files-of-two-attempts-are-one-step", "core/stage/quiet.c:obstacle",
        "if (mixes_attempts(f))", "if (0)", ("test_quiet",)),
    Row("cut-off-file-completes", "core/stage/quiet.c:obstacle",
        "if (f->is_cut)", "if (0)", ("test_quiet",)),
    Row("failed-writer-is-forgotten", "core/stage/quiet.c:ckpt_quiet_decide",
        "f->failed && !is_whole(f)", "false", ("test_quiet",)),
    Row("step-that-lacks-a-file-is-as-fast", "core/stage/quiet.c:is_whole",
        "!f->lacks_file &&", "", ("test_quiet",)),
    Row("end-that-nobody-knows-is-a-good-one", "core/stage/quiet.c:units",
        "f->is_claimed || f->unknown", "f->is_claimed", ("test_quiet",)),
    Row("empty-file-is-never-whole", "core/stage/survey.c:look_at_format",
        "ckpt_name_is_file_step(name) ? -EINVAL : 0", "-EINVAL", ("test_fs_quiet::test_an_empty_file_is_whole",)),
    Row("empty-array-file-is-whole", "core/stage/survey.c:look_at_format",
        "ckpt_name_is_file_step(name) ? -EINVAL : 0", "0", ("test_fs_quiet::test_an_empty_file_is_whole",)),
    Row("later-additions-are-awaited", "core/stage/neighbour.c:compare_file",
        "is_array(c, in, index, path) != (in == c->now)", "false", ("test_fs_quiet::test_a_file_that_was_added_after_its_neighbour",)),
    Row("number-of-the-neighbour-is-awaited", "core/stage/neighbour.c:ckpt_neighbour_rename",
        "digits && is_number(path, digits, from)", "false && is_number(path, digits, from)", ("test_quiet",)),
    Row("killed-by-a-signal-is-an-exit", "core/base/process.c:status_of_wait",
        "WIFSIGNALED(wait)", "wait < 0", ("test_process",)),
    Row("debugger-stops-nobody", "core/base/process.c:thread_is_stopped",
        "|| *state == 't'", "", ("test_process",)),
    Row("zombie-that-we-may-not-read-ended-well", "core/base/process.c:zombie_status",
        "may_read_end(p->pid) &&", "", ("test_process",)),
    Row("another-process-of-the-number", "core/base/process.c:find_process_locked",
        "|| has_ended(p->pidfd)", "", ("test_process",)),
    Row("file-of-a-killed-writer-joins", "core/stage/scan.c:add_file",
        "ckpt_torn_is(fd, &stx) ||", "", ("test_fs_quiet::test_the_file_that_a_killed_writer_had_open_joins_no_step",)),
    Row("torn-for-good", "core/stage/torn.c:ckpt_torn_is",
        "&& !memcmp(marked, now, (size_t)n)", "", ("test_stage_writer",)),
    Row("orderly-end-completes-anything", "core/stage/looker.c:complete_at_end",
        "(ended_well || is_whole) &&", "", ("test_fs_quiet::test_an_orderly_end_completes_what_is_whole",)),

    # Changes of a committed step
    Row("removed-before-the-pin-comes-back", "core/commit/remove_end.c:take_marks",
        "!is_in(b, by)", "!is_in(b, by) || b->step->summary.pinned", ("test_remove",)),
    Row("pinned-file-is-removed", "core/commit/remove.c:mark_locked",
        "step->summary.pinned", "false", ("test_pin",)),
    Row("write-through-latest-changes-the-newest", "fs/latest.c:latest_led_to",
        "return f &&", "return !f &&", ("test_fs_latest::test_what_is_written_through_the_link_changes_the_step_that_it_led_to_and_no_other",)),

    Row("file-of-a-version-changes-in-place", "fs/copy_up.c:copy_up_is_due",
        "ckpt_share_is_marked(fd)", "false", ("test_fs_contract::test_ln_of_a_committed_file_references_it",)),

    # Plain files
    Row("last-words-are-hidden", "fs/draft_end.c:draft_settle",
        "d->killed && !has_last_words(d)", "d->killed", ("test_fs_trackers::test_the_last_words_of_a_killed_writer_are_shown",)),
    Row("half-a-tracker-is-last-words", "fs/draft_end.c:has_last_words",
        "!ckpt_tracker_is_known(d->name) &&", "", ("test_fs_trackers::test_known_trackers_of_a_killed_writer",)),
    Row("log-waits-for-its-close", "fs/draft_live.c:is_log_locked",
        "|| (d->written.at_ns && now - d->written.at_ns >= TRACKER_NS)", "", ("test_fs_trackers::test_one_that_stays_open_is_a_log",)),
    Row("cut-off-file-replaces-a-whole-one", "fs/draft_end.c:draft_settle",
        "d->replaces || d->short_of_room || !sure", "false", ("test_fs_files::test_an_incomplete_one_never_replaces_a_whole_one",)),
    Row("emptied-file-is-refused", "fs/draft_end.c:check_format",
        "rc == -ENODATA ? 0 : rc", "rc", ("test_fs_files",)),
    Row("swmr-waits-for-its-close", "fs/draft_live.c:do_due",
        "ckpt_format_is_swmr(d->fd)", "false", ("test_fs_files::test_hdf5_is_live_once_its_superblock_says_swmr",)),
    Row("memmap-waits-for-its-close", "fs/draft_live.c:is_synced_again_locked",
        "now - d->synced.at_ns >= SYNCED_NS &&", "false &&", ("test_fs_files::test_one_that_is_synced_again_a_minute_later",)),
    Row("holes-of-a-step-are-bytes", "fs/attr.c:attr_of_entry",
        "MIN(raw.st_blocks, ret_attr->st_blocks)", "ret_attr->st_blocks", ("test_fs_files::test_holes_are_told_of",)),

    # Room
    Row("newest-trash-goes-first", "core/store/room.c:by_age",
        "(x_ns > y_ns) - (x_ns < y_ns)", "(x_ns < y_ns) - (x_ns > y_ns)", ("test_room",)),
    Row("trash-limit-takes-the-last-one", "core/store/room.c:ckpt_room_choose",
        "&& go + 1 < count", "", ("test_room",)),
    Row("room-is-made-for-what-is-there", "core/store/room.c:look",
        "ret_want->reserve_bytes += r->expected_bytes", "(void)0", ("test_room",)),
    Row("one-that-cannot-go-keeps-the-others", "core/store/room.c:free_room",
        "passed++", "return false", ("test_room",)),
    Row("full-disk-is-the-kernels-matter", "fs/handle.c:choose_io",
        "writes && ckpt_room_is_short(fs->store->room)", "writes && !fs", ("test_fs_trash::test_a_refused_write_is_tried_again_once_room_was_made",)),
    Row("what-frees-room-needs-some", "backends/local.c:put_from_spares",
        "ckpt_is_full(r) && ckpt_spare_drop(l->tmp)", "!r && ckpt_spare_drop(l->tmp)", ("test_spare",)),
    Row("half-made-spare-counts", "backends/spare.c:is_whole",
        "(uint64_t)st.st_blocks * 512 >= CKPT_SPARE_BYTES", "true", ("test_spare",)),

    # Mount and umount
    Row("mount-hides-what-is-there", "fs/mount_check.c:mount_check_store",
        "!rc && !m->nonempty", "!rc && m->nonempty", ("test_fs_mount::test_a_mount_point_with_entries_is_refused_and_they_are_named",)),
    Row("store-made-of-a-mount-point", "fs/mount_check.c:check_operands",
        "!ckpt_store_probe(mountpoint) ||", "true ||", ("test_fs_mount::test_operands_the_wrong_way_round",)),
    Row("umount-in-the-middle-of-a-save", "tools/verb_umount.c:ask_mount",
        "how->force ? 0 : refuse_while_written(m->mountpoint, *staged)", "0", ("test_fs_mount::test_umount_is_refused_while_a_step_is_being_saved",)),
]


def found(root):
    """All of them, as they apply to the tree at root: one that does not apply any more proves nothing."""
    return [planned(root, row) for row in TABLE]


def planned(root, row):
    file, _, function = row.where.partition(":")
    text = (root / file).read_text()
    bodies = [(start, end) for name, start, end in source.functions(source.code(text)) if name == function]
    places = [place for start, end in bodies for place in source.places_of(text, row.old, start, end)]
    if len(places) != 1:
        raise Wrong(f"{row.name}: {row.where} has {len(places)} times: {row.old}")
    [(start, end)] = places
    return Mistake(row.name, file, row.suites, ((start, end, row.new),), source.line_at(text, start))
