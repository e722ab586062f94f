"""Forms: what is read of them, in whatever pieces they come, and what nobody may read in two ways."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from python_multipart.multipart import MultipartParser, parse_options_header

from app.api.body import InvalidBody
from app.api.forms import MAX_MODEL, MAX_PART_HEAD, MAX_PARTS, FormReader, boundary_of

B = b"bOuNd"


def part(name: bytes, data: bytes, more: bytes = b"", boundary: bytes = B) -> bytes:
    head = b'--%s\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n' % (boundary, name, more)
    return head + data + b"\r\n"


def form(*parts: bytes, boundary: bytes = B) -> bytes:
    return b"".join(parts) + b"--%s--\r\n" % boundary


FILE = part(b"file", b"\x00\r\n--bOuN\r\n-- \r" * 40, b'; filename="a.wav"\r\nContent-Type: audio/wav')
MODEL = part(b"model", b"whisper")


def read(body: bytes, *cuts: int, boundary: bytes = B) -> FormReader:
    reader = FormReader(boundary)
    edges = [0, *sorted(cuts), len(body)]
    for start, end in pairwise(edges):
        reader.feed(body[start:end])
    reader.end()
    return reader


@pytest.mark.parametrize(
    "body",
    [
        form(MODEL, FILE),
        form(FILE, MODEL),
        form(FILE, part(b"language", b"en"), MODEL, part(b"prompt", b"")),
        form(MODEL, FILE)[:-2],
    ],
    ids=["before", "behind", "between", "no last line end"],
)
def test_the_model_is_found_wherever_it_stands_and_however_the_form_is_cut(body: bytes) -> None:
    whole = read(body)
    assert whole.model == "whisper"
    start, end = whole.model_at
    assert body[start:end] == b"whisper"
    for cut in range(len(body)):
        reader = read(body, cut)
        assert (reader.model, reader.model_at) == ("whisper", (start, end))
    assert read(body, *range(len(body))).model_at == (start, end)


def test_it_is_known_as_soon_as_its_part_is_over_and_nothing_of_a_file_is_kept() -> None:
    reader = FormReader(B)
    reader.feed(MODEL + b"--bOuN")
    assert reader.model is None
    reader.feed(b"d")
    assert reader.model == "whisper"
    reader.feed(b"\r\n" + FILE[9:-2])
    for _ in range(100):
        reader.feed(b"x" * 100_000)
        assert len(reader._rest) + len(reader._data) < 100


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (form(MODEL, FILE, MODEL), "twice"),
        (form(MODEL, part(b"model", b"other")), "twice"),
        (b"x" + form(MODEL), "does not begin"),
        (b"\r\n" + form(MODEL), "does not begin"),
        (form(MODEL) + b"x", "behind the last delimiter"),
        (form(MODEL) + form(MODEL), "behind the last delimiter"),
        (form(MODEL)[:-4], "ends before"),
        (MODEL, "ends before"),
        (b"", "ends before"),
        (MODEL.replace(b"\r\n", b"\n"), "followed by something else"),
        (b"--bOuNd \r\n" + form(MODEL)[9:], "followed by something else"),
        (form(MODEL).replace(b"whisper\r\n--bOuNd", b"whisper\r\n--bOuNdary"), "followed by something else"),
        (form(part(b"model", b"m").replace(b'name="model"', b'name="model"; name="other"')), "one plain name"),
        (form(part(b"model", b"m").replace(b'name="model"', b"name*=utf-8''model")), "one plain name"),
        (form(part(b"model", b"m").replace(b'name="model"', b"name=\"model\"; name*=utf-8''x")), "one plain name"),
        (form(part(b"mod\\el", b"m")), "one plain name"),
        (form(part(b"model", b"m").replace(b'; name="model"', b"")), "one Content-Disposition"),
        (form(part(b"model", b"m").replace(b"form-data", b"attachment")), "one Content-Disposition"),
        (form(part(b"model", b"m", b'\r\nContent-Disposition: form-data; name="x"')), "one Content-Disposition"),
        (form(part(b"model", b"m", b"\r\n folded: x")), "malformed"),
        (form(part(b"model", b"m", b"\r\nno colon")), "malformed"),
        (form(part(b"model", b"m", b"; x")), "malformed"),
        (form(b"--bOuNd\r\n\r\nm\r\n"), "no headers"),
        (form(part(b"model", b"\xff")), "not UTF-8"),
        (form(part(b"model", b"m" * (MAX_MODEL + 1))), "at most"),
        (form(part(b"x", b"", b"\r\nx: " + b"y" * MAX_PART_HEAD)), "longer than"),
        (form(*(part(b"x", b"") for _ in range(MAX_PARTS + 1))), "more than"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(body: bytes, says: str) -> None:
    for cuts in ((), range(len(body)) if len(body) < 5000 else (1, len(body) // 2)):
        with pytest.raises(InvalidBody, match=says):
            read(body, *cuts)


@pytest.mark.parametrize(
    ("value", "boundary"),
    [
        (b"multipart/form-data; boundary=abc", b"abc"),
        (b'Multipart/Form-Data ;charset=utf-8; BOUNDARY="a b:c"', b"a b:c"),
        (b"multipart/form-data; boundary=" + b"x" * 70, b"x" * 70),
        (b"multipart/form-data; boundary=" + b"x" * 71, None),
        (b"multipart/form-data; boundary=a; boundary=b", None),
        (b"multipart/form-data; boundary=", None),
        (b'multipart/form-data; boundary="a\xc3\xa9"', None),
        (b'multipart/form-data; boundary="a "', None),
        (b"multipart/form-data", None),
        (b"multipart/form-data-x; boundary=a", None),
        (b"multipart/mixed; boundary=a", None),
        (b"application/json", None),
        (b"", None),
    ],
)
def test_the_boundary_is_the_one_that_is_named(value: bytes, boundary: bytes | None) -> None:
    headers = [(b"host", b"x"), (b"content-type", value)]
    if boundary is not None:
        assert boundary_of(headers) == boundary
        return
    with pytest.raises(InvalidBody):
        boundary_of(headers)


def test_one_content_type_and_no_more() -> None:
    for headers in ([], [(b"content-type", b"multipart/form-data; boundary=a")] * 2):
        with pytest.raises(InvalidBody):
            boundary_of(headers)


def models_by_the_workers_parser(body: bytes) -> list[bytes]:
    """As Starlette reads forms, and so vLLM: the values of all fields named `model`."""
    found: list[bytes] = []
    state: dict[str, Any] = {}

    def begin() -> None:
        state.update(name=b"", value=b"", headers=[], data=b"")

    def header_end() -> None:
        state["headers"].append((state["name"].lower(), state["value"]))
        state.update(name=b"", value=b"")

    def end() -> None:
        options: dict[bytes, bytes] = {}
        for name, value in state["headers"]:
            if name == b"content-disposition":
                options = parse_options_header(value)[1]
        if options.get(b"name") == b"model" and b"filename" not in options:
            found.append(state["data"])

    def gather(name: str) -> Any:
        def more(data: bytes, start: int, end: int) -> None:
            state[name] += data[start:end]

        return more

    callbacks = {
        "on_part_begin": begin,
        "on_header_field": gather("name"),
        "on_header_value": gather("value"),
        "on_header_end": header_end,
        "on_part_data": gather("data"),
        "on_part_end": end,
    }
    parser = MultipartParser(B, callbacks)  # type: ignore[arg-type]
    parser.write(body)
    parser.finalize()
    return found


WHOLE = (MODEL, FILE, part(b"model", b""), part(b"x", b"y"), part(b"x", b"\r\n--bOuNd-"), part(b"x", b"\r\n--bOuNdary"))
TORN = (b"--bOuNd", b"--bOuNd--", b"--bOuNd\r\n", b"\r\n--bOuNd \r\n", b"\r", b"\n", b"--", b'"', b"\\", b"\r\n\r\n")
HEADS = (
    b"Content-Disposition: form-data; ",
    b"content-disposition:form-data;name=model\r\n\r\nm\r\n",
    b'Content-Disposition: form-data; name="model"; filename=""\r\n\r\nm\r\n',
    b'name="model"',
    b'; filename="x"',
    b"; name=model",
)
PIECES = st.sampled_from(WHOLE) | st.sampled_from((*WHOLE, *TORN, *HEADS))


@settings(max_examples=1500, deadline=None)
@given(st.lists(PIECES, max_size=8), st.sampled_from([b"", b"\r\n"]))
def test_whatever_is_accepted_a_worker_reads_alike(pieces: list[bytes], last: bytes) -> None:
    body = b"".join(pieces) + b"--bOuNd--" + last
    try:
        model = read(body).model
    except InvalidBody:
        return
    theirs = models_by_the_workers_parser(body)
    assert theirs == ([] if model is None else [model.encode()])
