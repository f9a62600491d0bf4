"""What of a C file a mistake can be planted in, by the look of it: the house style makes a parser unnecessary."""

import re

QUIET = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|^\#(?:\\\n|[^\n])*""", re.S | re.M)


def code(text):
    """The same text, as long, with blanks for comments, strings, and the preprocessor's lines."""
    return QUIET.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def functions(quiet):
    """(name, start, end) of each function's body; quiet: as code() gives it."""
    for part in re.finditer(r"^\{\n.*?^\}", quiet, re.S | re.M):
        head = quiet[:part.start()].rstrip().rpartition("\n\n")[2].rpartition("}\n")[2]
        name = re.search(r"(\w+)\s*\(", head)
        if name:
            yield name.group(1), part.start(), part.end()


def closing(quiet, opening):
    """The place after the bracket that closes the one at `opening`."""
    depth = 0
    for at in range(opening, len(quiet)):
        depth += (quiet[at] in "([{") - (quiet[at] in ")]}")
        if not depth:
            return at + 1
    raise ValueError("a bracket that nothing closes")


def place(text, at):
    """LINE:COLUMN, as compilers count."""
    return f"{text.count(chr(10), 0, at) + 1}:{at - text.rfind(chr(10), 0, at)}"


def line_at(text, place):
    return text[text.rfind("\n", 0, place) + 1:].partition("\n")[0].strip()
