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
LOCAL = "crash_test_local"
CRASH_DELETE = "crash_test_delete"
CRASH_DRAFT = "crash_test_draft"
CRASH_GC = "crash_test_gc"
DELETE_FAULTS = "test_delete_faults"
AMEND_FAULTS = "test_amend_faults"
GC_FAULTS = "test_gc_faults"

TABLE = [
    Row("files-not-fsynced", "core/commit/commit.c:sync_path",
        "ckpt_sys.fdatasync(fd)", "0", (CRASH,)),
    Row("directories-not-fsynced", "core/commit/commit.c:sync_path",
        "|| u->shared ? ckpt_sys.fsync(fd)", "? 0", (CRASH,)),
    Row("failed-fsync-retried", "core/commit/commit.c:sync_path",
        "ckpt_stage_synced(a->step, u->ino, 0, 0, rc)", "(void)0", (FAULTS,)),
    Row("syncfs-left-out", "core/commit/commit.c:write_out",
        "ckpt_sys.syncfs(a->step->dirfd)", "0", (CRASH,)),
    Row("record-not-fsynced", "backends/local.c:stage_fill",
        "ckpt_sys.fsync(fd)", "0", (LOCAL, CRASH)),
    Row("steps-not-fsynced", "backends/local.c:publish_folder",
        "ckpt_sys.fsync(top_fd) < 0 ? -EIO : 0", "0", (LOCAL, CRASH)),
    Row("rename-for-link", "backends/local.c:publish_link",
        "link(l->tmp, stage->name, parent_fd, at->leaf", "rename(l->tmp, stage->name, parent_fd, at->leaf, 0", ("test_backend", "test_commit")),
    Row("eexist-ignored", "core/commit/publish.c:ckpt_attempt_publish",
        "return -EEXIST", "return 0", ("test_commit",)),
    Row("lease-ignored", "core/stage/scan.c:add_file",
        "take_lease(scan, fd)", "0", ("test_scan",)),
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
    Row("added-name-not-fsynced", "core/commit/amend.c:make_durable",
        "? rc : ckpt_sys.fsync(dirfd)", "", ("test_amend",)),
    Row("added-bytes-not-fsynced", "core/commit/amend.c:make_durable",
        "fd < 0 ? 0 : ckpt_sys.fsync(fd)", "0", ("test_amend",)),
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
    Row("two-make-one-store", "core/store/store.c:ckpt_store_init_with",
        "(void)flock(dirfd, LOCK_EX);", "", ("test_store",)),
    Row("folder-of-a-conversion-unknown", "core/stage/convert.c:ckpt_convert_prepare",
        "ckpt_sys.fsync(step->dirfd)", "0", ("test_convert",)),
    Row("conversion-not-taken-back", "core/store/store.c:store_open_parts",
        "ckpt_convert_settle(s)", "0", ("test_convert",)),
    Row("draft-not-written-out", "core/stage/draft.c:ckpt_draft_write_out",
        "ckpt_sys.fdatasync(fd)", "fd < 0", (CRASH_DRAFT,)),
    Row("drafts-name-not-fsynced", "core/stage/draft.c:ckpt_draft_published",
        "ckpt_sys.fsync(to_dirfd)", "to_dirfd < 0", (CRASH_DRAFT,)),
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
