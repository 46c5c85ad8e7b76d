"""The lines of a text file, gzip or not, without the empty ones; complaints name the line."""

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvoracle.model.errors import UsageError

GZIP = b"\x1f\x8b"
LINE_LENGTH_MAX = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end, and where it stands."""

    path: Path
    number: int
    text: str

    def wrong(self, problem: str) -> UsageError:
        """The error that says what is wrong with this line, and what to do."""
        return UsageError(f"{self.path} line {self.number}: {problem}.")


def lines(path: Path) -> Iterator[Line]:
    """One at a time; a UsageError where the file cannot be read on."""
    number = 0
    try:
        with path.open("rb") as raw:
            is_gzip = raw.peek(len(GZIP)).startswith(GZIP)
            file = gzip.GzipFile(fileobj=raw) if is_gzip else raw
            while data := file.readline(LINE_LENGTH_MAX):
                number += 1
                text = data.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                if len(data) == LINE_LENGTH_MAX:
                    raise Line(path, number, "").wrong("it does not end; give a file of lines")
                if text:
                    yield Line(path, number, text)
    except UnicodeDecodeError as error:
        raise Line(path, number, "").wrong("it is not text; give a UTF-8 file") from error
    except (OSError, EOFError, zlib.error) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path} cannot be read ({problem}); give another file.") from error
