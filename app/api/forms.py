"""Reads a form (multipart/form-data) as it comes, for its `model` only, and strictly.

Two parsers that read one form differently are how a request is routed as one thing and served as another. So what
parsers disagree about is refused: anything before the first delimiter or behind the last, a delimiter with something
behind it, a part with no name or with two, a repeated `model`. Nothing of a file is kept: of a part's data, at most a
delimiter's length waits for the next piece.
"""

import re
from collections.abc import Sequence
from enum import Enum, auto

from app.api.body import InvalidBody
from app.core.fleet.exchange import Header

MAX_PART_HEAD = 8 * 1024
MAX_PARTS = 256
MAX_MODEL = 1024
"""Bytes."""

BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
"""RFC 2046 §5.1.1."""

PARAMETER = re.compile(rb';[ \t]*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)=(?:"((?:[^"\\\r\n]|\\.)*)"|([^\s";]+))[ \t]*')
FORM_TYPE = re.compile(rb"multipart/form-data[ \t]*(?=;)", re.IGNORECASE)
DISPOSITION = re.compile(rb"form-data[ \t]*(?=;)", re.IGNORECASE)


def boundary_of(headers: Sequence[Header]) -> bytes:
    """The boundary that the request's Content-Type names. Raises InvalidBody, in words for a client."""
    types = [value for name, value in headers if name == b"content-type"]
    kind = FORM_TYPE.match(types[0]) if len(types) == 1 else None
    if kind is None:
        raise InvalidBody("this path takes a form: send it as multipart/form-data with a boundary")
    found = [value for name, value in _parameters(types[0], kind.end()) if name == b"boundary"]
    if len(found) != 1 or not BOUNDARY.fullmatch(found[0]):
        raise InvalidBody("the Content-Type of the form must name one boundary, of 1 to 70 characters")
    return found[0]


class _At(Enum):
    START = auto()
    HEAD = auto()
    DATA = auto()
    BEHIND_DELIMITER = auto()
    END = auto()


class FormReader:
    """model: once its part is whole. model_at: where its value stands in the body, as octets from and to."""

    __slots__ = ("_at", "_data", "_delimiter", "_is_model", "_offset", "_parts", "_rest", "_seen", "model", "model_at")

    def __init__(self, boundary: bytes) -> None:
        self.model: str | None = None
        self.model_at = (0, 0)
        self._delimiter = b"\r\n--" + boundary
        self._at = _At.START
        self._rest = b""
        self._offset = 0
        self._parts = 0
        self._seen = False
        self._is_model = False
        self._data = b""

    def feed(self, piece: bytes) -> None:
        """The next octets of the body. Raises InvalidBody."""
        rest = self._rest + piece
        self._rest = b""
        while rest:
            used = self._step(rest)
            if used == 0:
                break
            self._offset += used
            rest = rest[used:]
        self._rest = rest

    def end(self) -> None:
        """The body is over. Raises InvalidBody when the form is not."""
        if self._at is not _At.END or self._rest not in (b"", b"\r\n"):
            raise InvalidBody("the form ends before its last delimiter")

    # Each takes what it can of the octets and returns how many; 0 waits for more.

    def _step(self, rest: bytes) -> int:
        if self._at is _At.DATA:
            return self._data_part(rest)
        if self._at is _At.HEAD:
            return self._head(rest)
        if self._at is _At.BEHIND_DELIMITER:
            return self._behind_delimiter(rest)
        if self._at is _At.START:
            return self._start(rest)
        if not b"\r\n".startswith(rest):
            raise InvalidBody("there is something behind the last delimiter of the form")
        return 0

    def _start(self, rest: bytes) -> int:
        opening = self._delimiter[2:]
        if not rest.startswith(opening[: len(rest)]):
            raise InvalidBody("the form does not begin with the boundary that its Content-Type names")
        if len(rest) < len(opening):
            return 0
        self._at = _At.BEHIND_DELIMITER
        return len(opening)

    def _behind_delimiter(self, rest: bytes) -> int:
        if len(rest) < 2:
            return 0
        if rest.startswith(b"--"):
            self._at = _At.END
        elif rest.startswith(b"\r\n"):
            self._at = _At.HEAD
            self._parts += 1
            if self._parts > MAX_PARTS:
                raise InvalidBody(f"the form has more than {MAX_PARTS} parts")
        else:
            raise InvalidBody("a delimiter of the form is followed by something else than the end of its line")
        return 2

    def _head(self, rest: bytes) -> int:
        end = rest.find(b"\r\n\r\n")
        if rest.startswith(b"\r\n"):
            raise InvalidBody("a part of the form has no headers")
        if end < 0 or end > MAX_PART_HEAD:
            if len(rest) > MAX_PART_HEAD:
                raise InvalidBody(f"the headers of a part of the form are longer than {MAX_PART_HEAD} bytes")
            return 0
        self._is_model = is_model(rest[:end].split(b"\r\n"))
        if self._is_model:
            if self._seen:
                raise InvalidBody("the form has 'model' twice, and parsers differ in which one counts", "model")
            self._seen = True
        self._at = _At.DATA
        return end + 4

    def _data_part(self, rest: bytes) -> int:
        # An empty part's delimiter begins with the end of its head.
        end = rest.find(self._delimiter)
        if end < 0:
            passed = max(0, len(rest) - len(self._delimiter) + 1)
            if passed:
                self._keep(rest[:passed])
            return passed
        self._keep(rest[:end])
        if self._is_model:
            self._take_model(self._offset + end)
        self._data = b""
        self._at = _At.BEHIND_DELIMITER
        return end + len(self._delimiter)

    def _keep(self, data: bytes) -> None:
        if self._is_model:
            self._data += data
            if len(self._data) > MAX_MODEL:
                raise InvalidBody(f"'model' may have at most {MAX_MODEL} bytes", "model")

    def _take_model(self, end: int) -> None:
        try:
            self.model = self._data.decode()
        except UnicodeDecodeError:
            raise InvalidBody("'model' is not UTF-8", "model") from None
        self.model_at = (end - len(self._data), end)


def is_model(lines: Sequence[bytes]) -> bool:
    """Whether a part with these headers is the form's `model`. Raises InvalidBody when that can be read in two ways."""
    dispositions = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip() or b"\n" in line or b"\r" in line or b"\0" in line:
            raise InvalidBody("a header of a part of the form is malformed")
        if name.lower() == b"content-disposition":
            dispositions.append(value.strip())
    kind = DISPOSITION.match(dispositions[0]) if len(dispositions) == 1 else None
    if kind is None:
        raise InvalidBody("each part of the form must have one Content-Disposition: form-data; name=...")
    parameters = _parameters(dispositions[0], kind.end())
    names = [value for name, value in parameters if name.startswith(b"name")]
    if len(names) != 1 or not any(name == b"name" for name, _ in parameters) or b"\\" in names[0]:
        raise InvalidBody("each part of the form must have one plain name")
    # With a file name it is a file, for whoever reads it; as a model it would be missed.
    return names[0] == b"model" and not any(name.startswith(b"filename") for name, _ in parameters)


def _parameters(value: bytes, start: int) -> list[tuple[bytes, bytes]]:
    """What follows the first word of a header. Raises InvalidBody for what is not `; name=value` throughout."""
    found = []
    at = start
    while at < len(value):
        match = PARAMETER.match(value, at)
        if match is None:
            raise InvalidBody("a Content-Type or Content-Disposition of the form is malformed")
        found.append((match[1].lower(), match[2] if match[2] is not None else match[3]))
        at = match.end()
    return found
