"""What error messages show of values that may be of any size."""

import reprlib
import unicodedata

SCREEN = 1000  # characters of a message: half a terminal of 80 x 24
REASON = 200  # characters of an error's message inside another message
# Categories of Unicode: control characters, bytes that are not text, ends of lines and of paragraphs.
UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


class _Short(reprlib.Repr):
    """`repr` that stops early: a few lines of YAML can stand for values that no memory holds written out."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxlist, self.maxtuple, self.maxdict = 2, 8, 8, 4
        self.maxstring = self.maxother = 100

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write very long numbers in decimal. Those of 32 bits are far from that.
        return repr(x) if x.bit_length() < 100 else f"a number of {x.bit_length()} bits"


def shown(value: object) -> str:
    """`repr(value)`; of a large value only its beginning and end."""
    return _Short().repr(value)


def shortened(message: str, most: int = SCREEN) -> str:
    """`message` in at most `most` characters: what names the value and what says the rule stand at its ends."""
    if len(message) <= most:
        return message
    half = (most - len(" ... ")) // 2
    return f"{message[:half]} ... {message[-half:]}"


def one_line(error: BaseException, most: int = REASON) -> str:
    """The message of an error in one line of at most `most` characters; its type, if it has no message."""
    return shortened(" ".join(str(error).split()), most) or type(error).__name__


def failure(error: Exception) -> str:
    """What has failed, in a line: of a file, its name and why."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return one_line(error)


def printable(message: str) -> str:
    """`message` as it can be printed: on a screen, in one line, and without orders to the terminal."""
    return "".join(c if is_plain(c) else repr(c)[1:-1] for c in shortened(message))


def is_invisible(text: str) -> bool:
    """Whether nothing of `text` can be seen: it is empty, or blanks and marks without a width."""
    return not any(character.isprintable() and not character.isspace() for character in text)


def is_plain(text: str) -> bool:
    """Whether `text` can stand in one line, as a name or a path."""
    return not any(unicodedata.category(character) in UNPRINTABLE for character in text)
