"""What a worker's URL may be."""

import pytest

from app.core.fleet.address import parse_worker_url, worker_id


@pytest.mark.parametrize(
    ("url", "parsed", "name"),
    [
        ("http://Gpu-1:8000/", "http://gpu-1:8000", "gpu-1:8000"),
        (" http://gpu-1 ", "http://gpu-1:80", "gpu-1:80"),
        ("https://gpu-1/engines/a/", "https://gpu-1:443/engines/a", "gpu-1:443~engines~a"),
        ("http://[::1]:8000", "http://[::1]:8000", "[::1]:8000"),
    ],
)
def test_one_form_for_each_address(url: str, parsed: str, name: str) -> None:
    assert parse_worker_url(url) == parsed
    assert parse_worker_url(parsed) == parsed
    assert worker_id(parsed) == name


@pytest.mark.parametrize(
    "url",
    [
        "",
        "gpu-1:8000",
        "ftp://gpu-1",
        "http://",
        "http://gpu-1?x=1",
        "http://gpu-1#x",
        "http://gpu-1:0",
        "http://g:99999",
    ],
)
def test_what_it_may_not_be(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_worker_url(url)


@pytest.mark.parametrize("url", ["http://u:secret@gpu-1", "ftp://u:secret@gpu-1", "http://u:secret@gpu-1?x"])
def test_a_password_is_refused_and_never_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="worker_api_key") as refused:
        parse_worker_url(url)
    assert "secret" not in str(refused.value)
