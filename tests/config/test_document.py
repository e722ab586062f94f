"""The YAML file, and what people do to YAML files."""

from pathlib import Path

import pytest

from tests.config.test_load import configure, problems


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "w.yaml"


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "~\n", "{}\n"])
def test_an_empty_file_is_all_defaults(path: Path, text: str) -> None:
    path.write_text(text)
    assert configure(file=path) == configure()


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("- port: 1\n", "", "must be a mapping of settings (`key: value` lines), but is a list"),
        ("port\n", "", "must be a mapping of settings (`key: value` lines), but is a single value"),
        ("port: 1\nhost: ::1\nport: 2\n", " line 3, port", "is there twice"),
        ("model_alias:\n  a: b\n  a: c\n", " line 3, a", "is there twice"),
        ("port: '1'\n", " line 1, port", "must be a whole number, not '1'"),
        ("port: true\n", " line 1, port", "must be a whole number, not True"),
        ("port: 1.5\n", " line 1, port", "must be a whole number, not 1.5"),
        ("port:\n", " line 1, port", "has no value; leave the key out to get the default"),
        ("insecure: 1\n", " line 1, insecure", "must be true or false, not 1"),
        ("host: yes\n", " line 1, host", "must be text, not True; write it in quotes"),
        (
            "store_dir: 2026-01-02\n",
            " line 1, store_dir",
            "must be text, not datetime.date(2026, 1, 2); write it in quotes",
        ),
        ("store_dir: 2026-02-31\n", " line 1, store_dir", "is not a value; write a text in quotes"),
        ("model_alias: {no: llama}\n", " line 1, model_alias", "must be text, not False; write it in quotes"),
        ("model_alias: {a: 3}\n", " line 1, model_alias", "must be text, not 3; write it in quotes"),
        ("model_alias: [a]\n", " line 1, model_alias", "must be a mapping, not ['a']"),
        ("worker_urls: {a: b}\n", " line 1, worker_urls", "must be a list, not {'a': 'b'}"),
        ("worker_urls: [8000]\n", " line 1, worker_urls", "item 1 must be text, not 8000; write it in quotes"),
        ("api_key: [12345]\n", " line 1, api_key", "item 1 must be text; write it in quotes"),
        ("admin_api_key: 12345\n", " line 1, admin_api_key", "must be text; write it in quotes"),
        ("? [a]\n: 1\n", " line 1", "a key must be the name of a setting"),
        ("routing_logic: random\n", " line 1, routing_logic", "no such setting; did you mean policy?"),
        ("worker-urls: []\n", " line 1, worker-urls", "no such setting; did you mean worker_urls?"),
        ("port: [1\n", " line 2", "is not YAML: expected …"),
        ("admin_api_key: *sesame\n", " line 1", "is not YAML: found undefined alias …"),
        ("admin_api_key: !sesame x\n", " line 1", "is not YAML: could not determine a constructor for the tag …"),
        ("port: 1\n---\nport: 2\n", " line 2", "is not YAML: but found another document"),
        ("port: \x00\n", "", "is not YAML: it holds a character that YAML does not allow"),
    ],
)
def test_wrong_files(path: Path, text: str, where: str, what: str) -> None:
    path.write_text(text)
    assert problems(file=path) == [f"{path}{where}: {what}"]


def test_bytes_that_are_not_text(path: Path) -> None:
    path.write_bytes(b"host: \xff\n")
    assert problems(file=path) == [f"{path}: is not UTF-8 text"]


def test_a_list_may_be_written_as_one_text(path: Path) -> None:
    path.write_text("worker_urls: http://a:1, http://b:1\nmodel_alias: a=b\nrequest_timeout_secs: 30\ninsecure: yes\n")
    config = configure(file=path)
    assert config.worker_urls == ("http://a:1", "http://b:1")
    assert config.model_alias == {"a": "b"}
    assert config.request_timeout_secs == 30.0
    assert config.insecure is True


def test_items_of_a_yaml_list_are_not_split(path: Path) -> None:
    path.write_text('api_key: ["one,still-one"]\n')
    assert [key.get_secret_value() for key in configure(file=path).api_key] == ["one,still-one"]
