"""The state of a log (core/state, by the program tests/state/apply.c) is that of the model in reference.py.

Each sequence of a few acts, long ones by chance, the log from a snapshot of any point, and logs with entries that are damaged, cut off,
missing, doubled or out of order. What fails names its acts and its seed; CKPT_TEST_SEED gives another one.
"""

import hashlib
import os
import pathlib
import random
import subprocess

import pytest

import reference
from reference import AMEND, ANY, DELETE, EXPIRE, FLAG, NEWER, NOTE, PINNED, RENAME, SAVE, SET, TEMPORARY, UNDELETE, Act, State

PROGRAM = os.environ.get("CKPT_STATE_APPLY") or str(pathlib.Path(__file__).parents[2] / "build/tests/state_apply")
SEED = int(os.environ.get("CKPT_TEST_SEED", "1"))
EBADMSG = 74


def uuid(n):
    return f"{n:08x}-0000-4000-8000-{n * 0x9E3779B9 % 2**48:012x}"


STEPS = [uuid(n) for n in (7, 3, 9, 1, 5)]
NODES = [uuid(n) for n in (100, 101)]
PLACES = [("-", "step-1"), ("-", "step-2"), ("0123456789abcdef", "step-1"), ("-", "best")]
A, B = STEPS[:2]
X, Y = PLACES[:2]
KEYS = ["policy", "expected", "z"]
UNKNOWN = 20
COMMS = ["-", "python3", "fifteen-bytes-x", "\u00e9"]


class Program:
    """Commands, then the answers to all of them."""

    def __init__(self, acts):
        self.commands = ["act " + reference.line(act) for act in acts]

    def add(self, command, *values):
        self.commands.append(" ".join([command, *map(str, values)]))

    def answers(self):
        done = subprocess.run([PROGRAM], input="\n".join(self.commands) + "\n", capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
        return done.stdout.splitlines()


def act(kind, step=A, version=0, place=("-", "-"), replaces="-", flags=0, required=1):
    return Act(kind, NODES[0], 0, required, step, version, flags, 1000 * kind + version, replaces, *place, uid=kind, comm=COMMS[kind % 4])


def value(key, before, text):
    return Act(SET, NODES[0], 0, 1, key=key, before=before, value=text)


# --- Each sequence ----------------------------------------------------------------------------------------------------

WIDE = [
    act(SAVE, A, 1, X),
    act(SAVE, A, 1, Y, flags=TEMPORARY),
    act(SAVE, B, 1, Y),
    act(SAVE, B, 2, X, replaces=A),
    act(SAVE, A, 1, X, replaces=B),
    act(AMEND, A, 2, X),
    act(AMEND, A, 3, Y, flags=PINNED),
    act(NOTE, B, 2, Y),
    act(DELETE, A, 2),
    act(DELETE, A, 4),
    act(DELETE, B, 2),
    act(UNDELETE, A, 3),
    act(UNDELETE, A, 5),
    act(UNDELETE, B, 3),
    act(EXPIRE, A, 2),
    act(EXPIRE, A, 4),
    act(EXPIRE, B, 2),
    act(RENAME, A, 0, Y),
    act(RENAME, B, 0, X),
    act(FLAG, A, 2, flags=PINNED),
    act(FLAG, A, 3),
    act(UNKNOWN, A, required=1),
    value("policy", ANY, "a"),
]
DEEP = [
    act(SAVE, A, 1, X),
    act(SAVE, B, 2, X, replaces=A),
    act(AMEND, A, 3, X),
    act(AMEND, B, 4, Y),
    act(DELETE, A, 2),
    act(DELETE, A, 4),
    act(UNDELETE, A, 5),
    act(EXPIRE, A, 2),
    act(RENAME, A, 0, Y),
    act(RENAME, B, 0, Y),
    act(FLAG, A, 3, flags=PINNED | TEMPORARY),
    act(FLAG, B, 5, flags=PINNED),
]


VALUES = [
    value("policy", ANY, "a"),
    value("policy", 0, "b"),
    value("policy", 1, "c"),
    value("policy", 3, "a"),
    value("policy", ANY, "-"),
    value("policy", 2, "-"),
    value("expected", 0, "longer"),
    value("expected", ANY, "-"),
    value("z", ANY, "x"),
    value("z", 9, "y"),
    act(SAVE, A, 1, X),
]


class Known:
    """The states that were met, each once, and what each act makes of it: there are far fewer of them than sequences."""

    def __init__(self, acts):
        self.acts = acts
        self.by_text = {}
        self.start = self.meet(State())

    def meet(self, state):
        text = state.text()
        if text not in self.by_text:
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            self.by_text[text] = {"state": state, "digest": digest, "next": [None] * len(self.acts)}
        return self.by_text[text]

    def after(self, known, i):
        if not known["next"][i]:
            state = known["state"].copy()
            code = state.apply(self.acts[i], i + 1)
            met = self.meet(state)
            known["next"][i] = (f"{code} {met['digest']}", met)
        return known["next"][i]


@pytest.mark.parametrize("acts, depth", [(WIDE, 4), (DEEP, 5), (VALUES, 5)], ids=["wide", "deep", "values"])
def test_each_sequence(acts, depth):
    program = Program(acts)
    program.add("walk", depth)
    lines = iter(program.answers())
    known = Known(acts)

    def walk(before, sequence):
        for i in range(len(acts)):
            says, after = known.after(before, i)
            line = next(lines)
            assert line == says, "\n".join(reference.line(acts[k]) for k in sequence + [i])
            if len(sequence) + 1 < depth:
                walk(after, sequence + [i])

    walk(known.start, [])
    assert next(lines, None) is None
    assert len(known.by_text) > 50  # the acts do come to something


# --- Long sequences ---------------------------------------------------------------------------------------------------


def random_act(chance, state, number):
    """Mostly one that fits: the version that comes next, the step that has the name."""
    right = chance.random() < 0.8
    kind = chance.choice([SAVE] * 6 + list(range(AMEND, SET + 1)) * 2 + [UNDELETE, RENAME] * 2)
    step = chance.choice(STEPS)
    place = chance.choice(PLACES)
    if right and kind == SAVE:
        step = chance.choice([s for s in STEPS if s not in state.steps] or STEPS)
    elif right and state.steps:
        trash = kind in (UNDELETE, EXPIRE)
        step = chance.choice([s for s in sorted(state.steps) if bool(state.steps[s]["deleted_by"]) == trash] or STEPS)
    known = state.steps.get(step)
    version = chance.randint(1, 9)
    if right and known:
        version = max(known["versions"][-1][0], known["deleted_by"]) + chance.choice([1, 1, 1, 2])
    if right and known and reference.SAVE < kind <= NOTE:
        place = known["place"]
    there = state.listed(place)
    replaces = there["id"] if right and there else chance.choice(["-", "-", chance.choice(STEPS)])
    node = chance.choice(NODES)
    required = chance.randint(0, 1)
    if chance.random() < 0.02:
        kind, required = UNKNOWN, chance.random() < 0.3
    flags = 0
    if kind <= NOTE or kind == FLAG:
        flags = chance.choice([0, 0, 0, PINNED, TEMPORARY, PINNED | TEMPORARY])
    if kind == SET:
        key = chance.choice(KEYS)
        before = chance.choice([ANY, state.values.get(key, (0, ""))[0]] if right else [0, 1, chance.randint(2, 10**9)])
        return Act(kind, node, number, int(required), "-", 0, 0, chance.randint(-5, 10**18), key=key, before=before, value=chance.choice(["-", "a", "b", "some-text" * 9]), uid=7)
    if kind == EXPIRE and right and known and known["deleted_by"]:
        version = known["deleted_by"]
    if kind in (RENAME, UNKNOWN):
        version = 0
    return Act(kind, node, number, int(required), step, version, flags, chance.randint(-5, 10**18), replaces, *place, uid=chance.choice([0, 1000, 2**32 - 1]), comm=chance.choice(COMMS))


def random_acts(chance, count, first=0):
    state, acts = State(), []
    for number in range(count):
        acts.append(random_act(chance, state, chance.choice([0, number, number, number // 2])))
        state.apply(acts[-1], first + len(acts))
    return acts


def test_long_sequences():
    fitting = {}
    for group in range(20):
        seed = f"{SEED}/long/{group}"
        chance = random.Random(seed)
        sequences = [random_acts(chance, 50, n * 50) for n in range(100)]
        everything = [act for acts in sequences for act in acts]
        program = Program(everything)
        expected = []
        for n, acts in enumerate(sequences):
            state, codes = State(), []
            for i, one in enumerate(acts):
                codes.append(state.apply(one, n * 50 + i + 1))
                fitting.setdefault((one.kind, codes[-1]), 0)
                fitting[one.kind, codes[-1]] += 1
            program.add("run", *range(n * 50, n * 50 + 50))
            expected.append(" ".join(map(str, codes)) + " ; " + state.text())
        for acts, got, want in zip(sequences, program.answers(), expected, strict=True):
            assert got == want, f"seed {seed}:\n" + "\n".join(map(reference.line, acts))
    for kind in range(SAVE, SET + 1):  # each was met often, fitting and not
        assert fitting.get((kind, 0), 0) > 500 and fitting.get((kind, 1), 0) > 500, fitting


# --- Logs -------------------------------------------------------------------------------------------------------------


class Log:
    """A log by chance: entries of one to four acts, and the state behind each."""

    def __init__(self, chance, entries):
        acts = random_acts(chance, entries * 4)
        self.acts = [act._replace(required=0) if act.kind == UNKNOWN else act for act in acts]
        self.entries = []
        state, at = State(), 0
        self.states = [state.text()]
        for seq in range(1, entries + 1):
            count = chance.randint(1, 4)
            self.entries.append(range(at, at + count))
            for i in self.entries[-1]:
                state.apply(self.acts[i], seq)
            at += count
            self.states.append(state.text())

    def program(self):
        program = Program(self.acts)
        program.add("log")
        for entry in self.entries:
            program.add("entry", *entry)
        return program

    def answer(self, seq, code=0):
        return f"{code} {seq} ; {self.states[seq]}"


def test_from_a_snapshot_of_any_point():
    for n in range(20):
        seed = f"{SEED}/snapshot/{n}"
        log = Log(random.Random(seed), 25)
        entries = log.program().answers()
        program = Program(log.acts)
        program.add("log")
        expected = []
        for seq in range(len(entries) + 1):  # the log as it was then, and then all of it
            if seq:
                program.add("put", seq, entries[seq - 1])
            program.add("read")
            program.add("snapshot")
            for later in range(seq, len(entries)):
                program.add("put", later + 1, entries[later])
            program.add("resume")
            for later in range(seq, len(entries)):
                program.add("put", later + 1, "-")
            expected += [log.answer(seq), log.answer(len(entries))]
        assert program.answers() == expected, f"seed {seed}"


def damage(chance, entries, others):
    """A log with something wrong, the number of entries before it, and what it is."""
    wrong = list(entries)
    at = chance.randrange(len(entries))
    whole = bytes.fromhex(entries[at])
    how = chance.choice(["bit", "byte", "cut", "longer", "missing", "swapped", "doubled", "of another log", "empty"])
    if how in ("bit", "byte"):
        i = chance.randrange(len(whole))
        changed = whole[i] ^ (1 << chance.randrange(8) if how == "bit" else chance.randint(1, 255))
        wrong[at] = (whole[:i] + bytes([changed]) + whole[i + 1 :]).hex()
    elif how == "cut":
        wrong[at] = whole[: chance.randrange(len(whole))].hex()
    elif how == "longer":
        wrong[at] = (whole + b"\0" * chance.randint(1, 9)).hex()
    elif how == "missing":
        wrong[at] = "-"
    elif how == "swapped":
        other = chance.choice([i for i in range(len(entries)) if i != at])
        wrong[at], wrong[other] = wrong[other], wrong[at]
        at = min(at, other)
    elif how == "doubled":  # all that follows is one later
        wrong.insert(at, entries[at])
        at += 1
    elif how == "of another log":
        wrong[at] = others[at]
    else:
        wrong[at] = ""
    return wrong, at, how


def test_damaged_logs():
    for n in range(10):
        seed = f"{SEED}/damage/{n}"
        chance = random.Random(seed)
        log = Log(chance, 12)
        entries = log.program().answers()
        other_log = Log(chance, 12)
        others = other_log.program().answers()
        program = Program(log.acts + other_log.acts)
        expected, how = [], []
        for _ in range(200):
            wrong, at, name = damage(chance, entries, others)
            program.add("log")
            for seq, entry in enumerate(wrong, 1):
                program.add("put", seq, entry)
            program.add("read")
            if name == "of another log" and at == 0:  # it may begin one, and nothing follows it
                expected.append(other_log.answer(1, -EBADMSG))
            else:
                expected.append(log.answer(at, 0 if name == "missing" else -EBADMSG))
            how.append((name, at))
        for got, want, what in zip(program.answers(), expected, how, strict=True):
            assert got == want, f"seed {seed}: {what}"


def test_each_byte_of_an_entry():
    log = Log(random.Random(f"{SEED}/bytes"), 3)
    entries = [bytes.fromhex(entry) for entry in log.program().answers()]
    program = log.program()
    for i in range(len(entries[1])):
        for bad in (entries[1][:i], entries[1][:i] + bytes([entries[1][i] ^ 0x20]) + entries[1][i + 1 :]):
            program.add("put", 2, bad.hex())
            program.add("read")
    for answer in program.answers()[3:]:
        assert answer == log.answer(1, -EBADMSG)


def test_reading_ends_at_what_is_newer():
    save, newer = act(SAVE, A, 1, X), act(UNKNOWN, A, required=1)
    program = Program([save, newer])
    for command in (["log"], ["entry", 0], ["entry", 1], ["read"]):
        program.add(*command)
    state = State()
    state.apply(save, 1)
    assert program.answers()[2] == f"{NEWER} 1 ; {state.text()}"
