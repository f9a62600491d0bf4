"""What a planted mistake is."""

import dataclasses


class Wrong(Exception):
    """It cannot be tried, and why."""


@dataclasses.dataclass
class Mistake:
    name: str
    file: str
    suites: tuple  # tried in this order until one fails; FILE::TEST is one test of a pytest file
    changes: tuple  # (start, end, text) by place in the file, none over another; (None, None, text): all of it
    line: str = ""  # what it changes, for who looks at one that was not caught

    def planted(self, text):
        """The file's text with the mistake in it."""
        for start, end, new in reversed(self.changes):
            text = new if start is None else text[:start] + new + text[end:]
        return text
