"""Mistakes made by a program: a condition turned round, a limit moved by one, a call left out, an error not handed on.

They go into the code that commits and into that of records and manifests. Some change nothing that anybody could notice;
which those are, a person must say: the list of what was not caught is for that.
"""

import random
import re

import source
from mistake import Mistake

# The fastest that are likely to notice.
RECORDS = ("test_record", "test_manifest", "fuzz_record", "fuzz_manifest", "test_layers", "test_load", "test_scan", "test_commit",
           "test_amend", "test_reopen")
COMMITS = ("test_commit", "test_commit_refused", "test_scan", "test_commit_late", "test_commit_leftovers", "test_commit_hangs",
           "test_reopen", "test_delete", "test_commit_faults", "crash_test_commit")
SUITES = {
    "core/save/commit.c": COMMITS,
    "core/save/attempt.c": COMMITS,
    "core/save/attempt_sync.c": COMMITS,
    "core/save/attempt_wait.c": COMMITS,
    "core/save/publish.c": COMMITS,
    "core/save/version.c": ("test_commit", "test_pin", "test_delete", "test_move", "test_amend_faults", "test_delete_faults"),
    "core/record/record.c": RECORDS,
    "core/record/manifest.c": RECORDS,
    "core/record/manifest_seals.c": RECORDS,
    "core/record/manifest_encode.c": RECORDS,
    "core/record/manifest_writer.c": RECORDS,
}

SWAPS = {"&&": "||", "||": "&&", "==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">"}
OPERATOR = re.compile(r"(?<= )(&&|\|\||==|!=|<=|>=|<|>)(?= )")
BY_ONE = re.compile(r"(?<= )([+-])(?= 1\b)")
CONDITION = re.compile(r"\b(if|while) (?=\()")
CALL = re.compile(r"^\t+((?:\(void\))?(?!if\b|for\b|while\b|switch\b|return\b|sizeof\b)[\w.>-]+)(?=\([^;{}]*\);$)", re.M)
RESULT = re.compile(r"^\t+\w+ = (?=[\w.>-]+\([^;{}]*\);$)", re.M)
# A sanitizer's matter: leaks, races, a byte past the end. And a descriptor is never 0.
LEAKS = re.compile(r"\bfree$|_free$|_unref$|_done$|pthread_mutex_lock$|^LOCK_SCOPE$")
SIZE = re.compile(r"alloc\(|sizeof|ckpt_grow\(")
DESCRIPTOR = re.compile(r"\w*(?:fd|copy) (?:<|>=) 0\b")
ERROR = re.compile(r"\breturn ((?:rc|r|-E[A-Z]+))(?=;)")


def changes(text, quiet, start, end):
    """(start, end, new text) of each mistake that can be made between the two places; quiet: source.code(text)."""
    for found in OPERATOR.finditer(quiet, start, end):
        if not DESCRIPTOR.search(quiet, quiet.rfind(" ", 0, found.start() - 1), found.end() + 2):
            yield *found.span(), SWAPS[found.group()]
    for found in BY_ONE.finditer(quiet, start, end):
        if not SIZE.search(source.line_at(quiet, found.start())):
            yield *found.span(1), "-" if found.group(1) == "+" else "+"
    for found in CONDITION.finditer(quiet, start, end):
        after = source.closing(quiet, found.end())
        yield found.end(), after, f"(!{text[found.end():after]})"
    for found in CALL.finditer(quiet, start, end):
        if not LEAKS.search(found.group(1)):
            yield found.start(1), source.closing(quiet, found.end()), ""
    for found in RESULT.finditer(quiet, start, end):
        yield found.end(), quiet.index(";\n", found.end()), "0"
    for found in ERROR.finditer(quiet, start, end):
        yield *found.span(1), "0"


def found(root, seed, count):
    """So many of them, by chance; the same for the same seed and the same sources."""
    mutants = []
    for file, suites in SUITES.items():
        text = (root / file).read_text()
        quiet = source.code(text)
        for function, start, end in source.functions(quiet):
            for change in changes(text, quiet, start, end):
                at, after, new = change
                name = f"{file}:{source.place(text, at)}: {shown(text[at:after])} -> {shown(new) or '(nothing)'}"
                mutants.append(Mistake(name, file, suites, (change,), f"{function}: {source.line_at(text, at)}"))
    chosen = random.Random(seed).sample(range(len(mutants)), min(count, len(mutants)))
    return [mutants[number] for number in sorted(chosen)]


def shown(text):
    short = " ".join(text.split())
    return short if len(short) <= 60 else short[:57] + "..."
