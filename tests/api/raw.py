"""Raw requests and answers, for tests that compare bytes."""

BODY = b'{"model": "m"}'

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

LAST_CHUNK = b"0\r\n\r\n"


def post(body: bytes = BODY, *headers: bytes, path: bytes = b"/v1/chat/completions") -> bytes:
    """A request after whose answer the connection closes."""
    lines = (b"POST %s HTTP/1.1" % path, b"host: g", b"connection: close", b"content-length: %d" % len(body), *headers)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def answer(body: bytes, *headers: bytes, status: int = 200) -> bytes:
    """What a worker sends."""
    lines = (b"HTTP/1.1 %d X" % status, b"content-length: %d" % len(body), *headers)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def status_of(raw: bytes) -> int:
    return int(raw.removeprefix(b"HTTP/1.1 ")[:3])


def headers_of(raw: bytes) -> dict[bytes, bytes]:
    """Of an answer or a request; a name that is there twice fails."""
    found: dict[bytes, bytes] = {}
    for line in raw.split(b"\r\n\r\n", 1)[0].split(b"\r\n")[1:]:
        name, value = line.split(b": ", 1)
        assert name.lower() not in found, name
        found[name.lower()] = value
    return found


def body_of(raw: bytes) -> bytes:
    """The body of a complete answer; a chunked one that has no end fails."""
    rest = raw.split(b"\r\n\r\n", 1)[1]
    if headers_of(raw).get(b"transfer-encoding") != b"chunked":
        return rest
    body = []
    while True:
        size, rest = rest.split(b"\r\n", 1)
        length = int(size, 16)
        if length == 0:
            assert rest == b"\r\n"
            return b"".join(body)
        body.append(rest[:length])
        rest = rest[length + 2 :]


def dechunk(raw: bytes) -> bytes:
    """The body of a complete chunked message; an incomplete one fails."""
    body = b""
    while True:
        size, raw = raw.split(b"\r\n", 1)
        if int(size, 16) == 0:
            assert raw == b"\r\n"
            return body
        body += raw[: int(size, 16)]
        raw = raw[int(size, 16) + 2 :]
