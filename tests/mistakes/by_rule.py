"""Mistakes made by rule: each call that makes something durable, gives it its name, or keeps others away by a file lock is left out.

The calls are found in the sources, so that one which somebody adds is planted too. Instead of the call stands 0, which is
what it answers when all is well. A mistake is called FILE:FUNCTION:CALL, with #2 for the second of its kind in a function.
"""

import re

import source
from mistake import Mistake, Wrong

SEAM = re.compile(r"\bckpt_sys\.(fsync|fdatasync|syncfs|rename|link|lease)\(")
KERNEL = re.compile(r"(?<![\w.>])(fsync|fdatasync|syncfs|renameat2?|linkat|flock|fcntl)\(")
LOCK = re.compile(r"F_SETLEASE|F_OFD_SETLKW?|F_SETLKW?")

# Where a file's calls are likely to be missed, the fastest first. What none of these notices is shown to all C programs.
SUITES = {
    "backends/local.c": ("test_local", "test_backend_threads", "crash_test_local", "crash_test_delete", "test_backend"),
    "core/save/amend.c": ("test_amend_over", "test_amend", "test_amend_meanwhile", "test_commit_late", "test_reopen", "test_amend_faults"),
    "core/ckptfs.c": ("test_fs_library::test_commit_whose_answer_was_lost",),  # in no C program
    "core/save/attempt_sync.c": ("crash_test_commit",),
    "core/save/convert.c": ("test_unstage", "test_convert"),
    "core/save/copy.c": ("test_commit_leftovers", "crash_test_commit"),
    "core/save/delete.c": ("test_delete", "crash_test_delete"),
    "core/save/draft.c": ("test_draft", "crash_test_draft"),
    "core/save/left_out.c": ("test_left_out",),
    "core/save/outdated.c": ("test_older", "crash_test_older"),
    "core/cold/file.c": ("test_gc",),
    "core/index/index_dir.c": ("test_index",),
    "core/save/scan.c": ("test_scan",),
    "core/save/reunite.c": ("crash_test_remote",),
    "core/save/session.c": ("crash_test_remote",),
    "core/save/share.c": ("test_share", "test_cool", "test_reopen"),
    "core/save/stage.c": ("test_stage", "crash_test_commit", "test_reopen"),
    "core/save/survey.c": ("test_looker",),
    "core/state/record_copy.c": ("test_damage",),
    "core/step/store.c": ("test_store", "test_settings", "test_hold", "crash_test_commit", "test_fs_config"),
    "core/step/store_folder.c": ("test_store", "crash_test_commit"),
    "core/step/holder.c": ("test_holder", "test_hold"),
    "core/step/store_file.c": ("test_store", "crash_test_store"),
    "core/store/room.c": ("test_room",),
    "core/base/sys.c": ("test_sys", "test_scan"),
    "core/step/trash.c": ("crash_test_delete",),
    "core/step/amending.c": ("test_amend", "test_amend_meanwhile", "test_commit_late", "test_reopen", "test_amend_faults"),
    "core/save/warm.c": ("test_cool_warm",),
}

# What no suite can notice, and why that is no hole.
EQUIVALENT = {
    "core/save/convert.c:ckpt_convert_sync:fsync#2":
        "a rename is one change and durable with its target's directory, sessions/, on every filesystem with a journal; this "
        "is the directory that the folder came from",
    "core/save/delete.c:files_out_of_sight:fsync#2":
        "the same: trash/ is where the session went, sessions/ is where it came from",
    "core/step/store.c:ckpt_store_make_folders:fsync":
        "who makes a store ends with write_file(), and who opens one with the backend's writable_open(), which sync the same "
        "directory before anything is answered",
}


def calls(text):
    """(what it is called, function, start, end) of each call."""
    quiet = source.code(text)
    for function, start, end in source.functions(quiet):
        for pattern in (SEAM, KERNEL):
            for found in pattern.finditer(quiet, start, end):
                after = source.closing(quiet, found.end() - 1)
                kind = found.group(1)
                if kind == "fcntl":
                    lock = LOCK.search(quiet, found.end(), after)
                    kind = lock and lock.group()
                if kind:
                    yield kind, function, found.start(), after


def found(root):
    mistakes = []
    for path in [*sorted((root / "core").rglob("*.c")), root / "backends/local.c"]:
        text = path.read_text()
        file = str(path.relative_to(root))
        count = {}
        for kind, function, start, end in sorted(calls(text), key=lambda call: call[2]):
            name = f"{file}:{function}:{kind}"
            count[name] = count.get(name, 0) + 1
            name += f"#{count[name]}" if count[name] > 1 else ""
            mistakes.append(Mistake(name, file, SUITES.get(file, ()), ((start, end, "0"),), source.line_at(text, start)))
    unknown = set(EQUIVALENT) - {mistake.name for mistake in mistakes}
    if unknown:
        raise Wrong(f"EQUIVALENT has what is not in the sources any more: {', '.join(sorted(unknown))}")
    return mistakes
