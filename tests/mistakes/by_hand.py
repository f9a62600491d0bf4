"""Mistakes chosen by hand: what somebody could get wrong, beyond a call that is left out."""

import dataclasses

from mistake import Mistake, Wrong


@dataclasses.dataclass
class Pattern:
    name: str
    file: str
    old: str  # must be there exactly once
    new: str
    suites: tuple  # tried in this order until one fails
    also: tuple = ()  # another (old, new) of the same file


CRASH = "crash_test_commit"
FAULTS = "test_commit_faults"
LOCAL = "crash_test_local"
CRASH_DELETE = "crash_test_delete"
CRASH_DRAFT = "crash_test_draft"
DELETE_FAULTS = "test_delete_faults"
AMEND = "test_amend"
AMEND_FAULTS = "test_amend_faults"
CONVERT = "test_convert"
SEAL = "test_seal"

TABLE = [
    Pattern("files-not-fsynced", "core/commit.c",
            "dir || u->shared ? ckpt_sys.fsync(fd) : ckpt_sys.fdatasync(fd);",
            "dir || u->shared ? ckpt_sys.fsync(fd) : 0;", (CRASH,)),
    Pattern("directories-not-fsynced", "core/commit.c",
            "dir || u->shared ? ckpt_sys.fsync(fd) : ckpt_sys.fdatasync(fd);",
            "dir ? 0 : ckpt_sys.fdatasync(fd);", (CRASH,)),
    Pattern("answer-before-publish", "core/commit.c",
            "\trc = ckpt_attempt_publish(a);\n",
            "\tfinish(a, 0);\n\trc = ckpt_attempt_publish(a);\n", (CRASH,),
            also=("static int attempt_run(", "static void finish(struct attempt *a, int rc);\n\nstatic int attempt_run(")),
    Pattern("failed-fsync-retried", "core/commit.c",
            "\t\tckpt_stage_synced(a->step, u->ino, 0, 0, rc);\n",
            "\t\t(void)0;\n", (FAULTS,)),
    Pattern("rename-replaces", "backends/local.c",
            "at->folder, RENAME_NOREPLACE)",
            "at->folder, 0)", ("test_backend_threads", "test_backend", LOCAL, "test_commit")),
    Pattern("syncfs-left-out", "core/commit.c",
            "lost = ckpt_sys.syncfs(a->step->dirfd);",
            "lost = 0;", (CRASH,)),
    Pattern("sessions-not-fsynced", "core/stage.c",
            "\t\trc = ckpt_sys.fsync(step->store->sessions_fd);\n",
            "\t\trc = 0;\n", (CRASH,)),
    Pattern("record-not-fsynced", "backends/local.c",
            "\tr = ckpt_sys.fsync(fd);\n\tif (r < 0)\n\t\treturn r;\n\tif (fstat(fd, &st) < 0)",
            "\tr = 0;\n\tif (r < 0)\n\t\treturn r;\n\tif (fstat(fd, &st) < 0)", (LOCAL, CRASH)),
    Pattern("steps-not-fsynced", "backends/local.c",
            "\treturn ckpt_sys.fsync(top_fd) < 0 ? -EIO : 0;\n}\n\nstatic int publish(",
            "\treturn 0;\n}\n\nstatic int publish(", (LOCAL, CRASH)),
    Pattern("rename-for-link", "backends/local.c",
            "ckpt_sys.link(l->tmp, stage->name, parent_fd, at->leaf);\n\n",
            "ckpt_sys.rename(l->tmp, stage->name, parent_fd, at->leaf, 0);\n\n", ("test_backend", "test_commit")),
    Pattern("eexist-ignored", "core/publish.c",
            "\tif (there == -EEXIST)\n\t\treturn -EEXIST;\n",
            "\tif (there == -EEXIST)\n\t\treturn 0;\n", ("test_commit",)),
    Pattern("lease-ignored", "core/scan.c",
            "rc = take_lease(scan, fd);",
            "rc = 0;", ("test_scan",),
            also=("static int take_lease(", "__attribute__((unused)) static int take_lease(")),
    Pattern("gate-open-while-committing", "core/stage.c",
            "\tif (step->state == CKPT_STEP_COMMITTING) {\n\t\tint rc = wait ?",
            "\tif (0) {\n\t\tint rc = wait ?", ("test_commit",)),
    Pattern("changes-not-waited-for", "core/commit.c",
            "while (step->changers || (any_to_wait_for_locked(a) &&",
            "while ((any_to_wait_for_locked(a) &&", ("test_commit",)),
    Pattern("writers-not-waited-for", "core/commit.c",
            "while (step->changers || (any_to_wait_for_locked(a) && step->state == CKPT_STEP_COMMITTING)) {",
            "while (step->changers) {", ("test_commit",)),
    Pattern("late-file-left-by-all", "core/commit.c",
            "return a->leaves_late && w->late && !w->flushed;",
            "return w->late && !w->flushed;", ("test_commit_late",)),
    Pattern("late-file-left-once-closed", "core/commit.c",
            "return a->leaves_late && w->late && !w->flushed;",
            "return a->leaves_late && w->late;", ("test_commit_late",)),
    Pattern("late-file-forgotten", "core/commit.c",
            "\tckpt_amend_expected_locked(step);\n", "", ("test_commit_late",)),
    Pattern("late-file-of-nobody-expected", "core/amend.c",
            "if (!has_writer_locked(step, f->ino)) {", "if (false) {", ("test_commit_late",)),
    Pattern("late-file-left-after-a-failure", "core/commit.c",
            "if (!rc || !a->unknown)\n\t\tleave_none_locked(step);", "if (false)\n\t\tleave_none_locked(step);", ("test_commit_late",)),
    Pattern("leftover-not-copied", "core/scan.c",
            "\t\tif (scan->leftovers[i].ino == ino)\n\t\t\treturn true;",
            "\t\tif (scan->leftovers[i].ino == ino)\n\t\t\treturn false;", ("test_commit_leftovers",)),
    Pattern("thaws-when-unknown", "core/commit.c",
            "\tstep->outcome_unknown = rc && a->unknown;\n",
            "\tstep->outcome_unknown = false;\n", ("test_commit", FAULTS)),
    Pattern("resolve-without-sync", "core/publish.c",
            "ckpt_backend_put(a->step->store->backend, object, data, len, NULL) == -EEXIST ? 0 : -EIO;",
            "0;", (FAULTS, CRASH)),
    Pattern("name-not-reserved", "core/step.c",
            "\t\tif (p->step != step && !strcmp(p->name, name)",
            "\t\tif (!p && !strcmp(p->name, name)", ("test_commit",)),
    Pattern("index-believed-over-the-store", "core/load.c",
            "\tfor (size_t i = 0; i < stored->count && !rc; i++)\n",
            "\tfor (size_t i = 0; i < indexed->count && !rc; i++)\n\t\trc = adopt(s, indexed->refs[i].summary);\n"
            "\tfor (size_t i = 0; i < stored->count && !rc; i++)\n", ("test_load",)),
    Pattern("key-not-compared", "core/load.c",
            " ||\n\t\t    ckpt_name_key(r.summary.folder_id, r.summary.name, key) || strcmp(key, ref->key))",
            ")", ("test_load",)),
    Pattern("store-id-not-compared", "core/load.c",
            "if (strcmp(r.store_id, s->id) || ",
            "if (", ("test_load",)),
    Pattern("folder-id-not-durable", "core/store.c",
            "folder_is_synced(s, id) ? 0 : sync_upwards(s, dirfd);",
            "0;", (CRASH,), also=("static int sync_upwards(", "__attribute__((unused)) static int sync_upwards(")),
    Pattern("written-after-the-record", "core/commit.c",
            "\trc = write_out(a);\n\tif (rc)\n\t\treturn rc;\n\trc = ckpt_attempt_prepare(a);",
            "\trc = ckpt_attempt_prepare(a);", (CRASH,)),
    Pattern("clean-whatever-the-time", "core/stage.c",
            "return f && !f->failed && f->ctime_ns == ctime_ns;",
            "return f && !f->failed;", ("test_stage",)),
    Pattern("version-not-fsynced", "backends/local.c",
            "\treturn sync_folders(l, at, parent_fd) < 0 ? -EIO : r;\n",
            "\treturn r;\n", (CRASH_DELETE,)),
    Pattern("version-given-again", "core/delete.c",
            "ckpt_step_versions_used_locked(step->store, step->folder_id, step->name) + 1;",
            "step->deleted_by + 1;", (DELETE_FAULTS, CRASH_DELETE)),
    Pattern("records-expire-before-files", "core/delete.c",
            "\tif (!rc && !step->moved)\n\t\trc = files_out_of_sight(step);\n",
            "", (CRASH_DELETE,),
            also=("\tfree(v.at);\n", "\tif (!rc && !step->moved)\n\t\trc = files_out_of_sight(step);\n\tfree(v.at);\n")),
    Pattern("expired-files-not-fsynced", "core/delete.c",
            "\t\trc = ckpt_sys.fsync(s->trash_fd);\n",
            "\t\trc = 0;\n", (CRASH_DELETE,)),
    Pattern("another-session-expires-too", "core/delete.c",
            "\tours = !strcmp(r.summary.session, step->session);\n",
            "\tours = true;\n", (DELETE_FAULTS, CRASH_DELETE)),
    Pattern("deletion-expires-first", "core/delete.c",
            "rc = sync_removals(step);\n\tif (!rc)\n\t\trc = remove_deletion(&v);\n",
            "rc = remove_versions_of(&v);\n",
            (CRASH_DELETE,), also=("\tif (!rc)\n\t\trc = remove_versions_of(&v);\n\tif", "\tif (!rc)\n\t\trc = remove_deletion(&v);\n\tif")),
    Pattern("expires-though-undeleted", "core/delete.c",
            "\treturn rc == -EEXIST || rc == -ENOENT ? 0 : rc ? rc : -ESTALE;\n",
            "\treturn 0;\n", (DELETE_FAULTS,)),
    Pattern("expires-while-undeleted", "core/delete.c",
            "int ckpt_expire(struct ckpt_step *step)\n{\n\tLOCK_SCOPE(&step->store->acts_lock);\n",
            "int ckpt_expire(struct ckpt_step *step)\n{\n", (DELETE_FAULTS,)),
    Pattern("undelete-asked-once", "core/delete.c",
            "return rc == -EEXIST ? read_undeletion(step, version, ret_summary) : rc;",
            "return rc;", (DELETE_FAULTS,)),
    Pattern("deletion-asked-once", "core/delete.c",
            "if (rc == -ESTALE && was_there && ckpt_step_state(step) == CKPT_STEP_DELETED && !step->moved)",
            "if (rc == -ENOTSUP && was_there)", (DELETE_FAULTS,)),
    Pattern("swept-before-durable", "core/trash.c",
            "if (t->count && ckpt_sys.fsync(s->trash_fd))",
            "if (t->count > 1000)", (CRASH_DELETE,)),
    Pattern("index-not-told-of-expiry", "core/delete.c",
            "int rc = step->store->indexer ? ckpt_indexer_remove(step->store->indexer, step->key, version) : 0;",
            "int rc = 0;", ("test_delete",)),
    Pattern("index-of-an-expired-version", "core/load.c",
            "if (known && ref->stored_ns && known->stored_ns == ref->stored_ns) {",
            "if (known) {", ("test_delete",)),
    Pattern("absence-not-fsynced", "backends/local.c",
            "\t\treturn sync_missing(l, &at);\n",
            "\t\treturn sync_missing(l, &at) ? -ENOENT : 0;\n", (CRASH_DELETE,),
            also=("ckpt_sys.fsync(fd) < 0 ? -EIO : -ENOENT;", "-ENOENT;")),
    Pattern("added-name-not-fsynced", "core/amend.c",
            "return rc ? rc : ckpt_sys.fsync(dirfd);",
            "return rc;", (AMEND,)),
    Pattern("added-bytes-not-fsynced", "core/amend.c",
            "int rc = fd < 0 ? 0 : ckpt_sys.fsync(fd);",
            "int rc = 0;", (AMEND,)),
    Pattern("lost-answer-of-an-amend-forgotten", "core/edit.c",
            "__atomic_store_n(&step->amend_unknown, true, __ATOMIC_RELAXED);",
            "(void)0;", (AMEND_FAULTS, AMEND)),
    Pattern("lost-write-of-an-amend-tried-again", "core/amend.c",
            "ckpt_stage_synced(d->step, ckpt_store_ino(&stx), 0, 0, rc);",
            "(void)0;", (AMEND_FAULTS,)),
    Pattern("seal-of-bytes-that-were-replaced", "core/seal.c",
            "e.ino == was_e.ino && e.bytes == was_e.bytes",
            "e.bytes == was_e.bytes", (SEAL,),
            also=("e.mtime_s == was_e.mtime_s && e.mtime_ns == was_e.mtime_ns", "true")),
    Pattern("seal-of-what-was-not-read", "core/manifest.c",
            "return m->seals.count == m->files_with_bytes;",
            "return m->seals.count > 0 || !m->files_with_bytes;", (SEAL,)),
    Pattern("sealed-after-an-addition", "core/edit.c",
            "r->summary.sealed = ckpt_manifest_is_sealed(d->next);",
            "r->summary.sealed |= ckpt_manifest_is_sealed(d->next);", (SEAL,)),
    Pattern("sealing-brings-back-what-is-removed", "core/edit.c",
            "ckpt_remove_same_entries(step, d->m, d->next);",
            "(void)0;", (SEAL,)),
    Pattern("sealing-is-a-commit", "core/edit.c",
            "r->summary.committed_ns = d->committed_ns;",
            "(void)0;", (SEAL,)),
    Pattern("damage-not-compared", "tools/check.c",
            "if (memcmp(is, chunk.id, sizeof(is)) && !damaged++) {",
            "if (memcmp(is, is, sizeof(is)) && !damaged++) {", ("test_fs_seal",)),
    Pattern("folder-of-a-conversion-unknown", "core/convert.c",
            "rc = ckpt_sys.fsync(step->dirfd);",
            "rc = 0;", (CONVERT,)),
    Pattern("conversion-not-taken-back", "core/store.c",
            "rc = ckpt_convert_settle(s);",
            "rc = 0;", (CONVERT,)),
    Pattern("draft-not-written-out", "core/draft.c",
            "return ckpt_sys.fdatasync(fd);",
            "return fd < 0;", (CRASH_DRAFT,)),
    Pattern("drafts-name-not-fsynced", "core/draft.c",
            "durable ? ckpt_sys.fsync(to_dirfd) : 0;",
            "durable ? to_dirfd < 0 : 0;", (CRASH_DRAFT,)),
    Pattern("killed-writer-completes", "core/commit.c",
            "if (blame_killed_locked(a, ret_blamed))", "if (false && blame_killed_locked(a, ret_blamed))", ("test_commit_refused",)),
    Pattern("drafts-end-is-kept", "core/draft.c",
            "if (empty > 0 && s->writable)",
            "if (empty < 0 && !s->writable)", (CRASH_DRAFT, "test_draft")),
    Pattern("marker-of-any-content", "core/profile.c",
            "json_is_string(json_object_get(l->json, \"sharded_backend\")) ? 0 : -ENOENT",
            "0", ("test_profile",)),
    Pattern("markers-count-in-temporary-steps", "core/profile.c",
            "if (deed->dir && ckpt_name_is_temp(deed->dir))",
            "if (!deed)", ("test_profile",)),
]


def found(root):
    """All of them, as they apply to the tree at root: one that does not apply any more proves nothing."""
    return [Mistake(p.name, p.file, p.suites, ((None, None, changed(root, p)),), p.old.strip().partition("\n")[0])
            for p in TABLE]


def changed(root, pattern):
    text = (root / pattern.file).read_text()
    for old, new in [(pattern.old, pattern.new)] + ([pattern.also] if pattern.also else []):
        if text.count(old) != 1:
            raise Wrong(f"{pattern.name}: {pattern.file} has {text.count(old)} times:\n{old}")
        text = text.replace(old, new)
    return text
