"""What of a C file a mistake can be planted in, by the look of it: the house style makes a parser unnecessary."""

import re

QUIET = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|^\#(?:\\\n|[^\n])*""", re.S | re.M)

TOKEN = re.compile(r'''"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[A-Za-z_]\w*|\d[\w.]*|->|\+\+|--|<<=|>>=|&&|\|\||[-+*/%&|^!<>=]=|<<|>>|\S''')
COMMENT = re.compile(r"""//[^\n]*|/\*.*?\*/""", re.S)


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


def tokens(text, start=0, end=None):
    """(token, start, end) of each in this part; comments have none."""
    bare = COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text[start:end])
    return [(found.group(), start + found.start(), start + found.end()) for found in TOKEN.finditer(bare)]


def places_of(text, words, start, end):
    """(start, end) of each place in this part of the text that has the tokens of `words`."""
    there, wanted = tokens(text, start, end), [token for token, _, _ in tokens(words)]
    for at in range(len(there) - len(wanted) + 1):
        if [token for token, _, _ in there[at:at + len(wanted)]] == wanted:
            yield there[at][1], there[at + len(wanted) - 1][2]


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
