"""The keys file: what may stand in it, and what is told of what may not."""

from pathlib import Path

import pytest

from app.config.errors import ConfigError
from app.config.keys_file import keys_file_stamp, read_hash_keys, read_keys_file
from app.config.load import from_values
from app.core.fleet.tenant import Grant, KeySet, Limits, Plane

DIGEST = "ab" * 32

GOOD = f"""
tenants:
  acme: {{requests_per_minute: 600, tokens_per_minute: 2.5, concurrency: 3, in_flight_bytes: 4096}}
keys:
  - {{name: a, tenant: acme, sha256: "{DIGEST}"}}
  - name: b@2026
    tenant: acme
    sha256: {"CD" * 32}
    models: ["llama-*"]
    planes: [data, admin]
    not_before: 1970-01-01
    expires: 1970-01-01T00:01:00Z
    limits: {{concurrency: 1}}
"""


def read(tmp_path: Path, text: str) -> KeySet:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    return read_keys_file(path)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    return [str(problem).replace(str(tmp_path / "keys.yaml"), "FILE") for problem in caught.value.problems]


def test_everything_that_may_stand_in_it(tmp_path: Path) -> None:
    text = GOOD.replace("1970-01-01\n", "1970-01-01T00:00:30\n")
    assert read(tmp_path, text) == KeySet(
        (
            Grant("a", "acme", bytes.fromhex(DIGEST)),
            Grant(
                "b@2026",
                "acme",
                b"\xcd" * 32,
                ("llama-*",),
                (Plane.DATA, Plane.ADMIN),
                30.0,
                60.0,
                Limits(concurrency=1),
            ),
        ),
        {"acme": Limits(600.0, 2.5, 3, 4096)},
    )
    assert read(tmp_path, "keys: []") == KeySet()


@pytest.mark.parametrize("text", ["", "\n", "# keys\n", "{}"])
def test_a_file_without_anything_is_one_that_is_being_written(tmp_path: Path, text: str) -> None:
    """Taken over, it would lock everybody out until the writer is done."""
    assert problems(tmp_path, text) == ["FILE: the file is empty; `keys: []` says that there are none"]


def test_all_problems_are_told_and_no_key_is_quoted(tmp_path: Path) -> None:
    told = problems(
        tmp_path,
        f"""
keys:
  - {{name: a, tenant: t, sha256: sk-the-key-itself}}
  - {{name: "b c", tenant: t, sha256: "{DIGEST}", planes: [root], typo: 1}}
  - {{name: d, sha256: "{DIGEST}", limits: {{concurrency: 0}}}}
tenants: {{t: {{requests_per_minute: -1}}}}
other: 1
""",
    )
    assert not any("sk-the-key-itself" in line for line in told)
    places = [line.split(": ")[0] for line in told]
    assert sorted(places) == [
        "FILE, keys.1.sha256",
        "FILE, keys.2.name",
        "FILE, keys.2.planes.1",
        "FILE, keys.2.typo",
        "FILE, keys.3.limits.concurrency",
        "FILE, keys.3.tenant",
        "FILE, other",
        "FILE, tenants.t.requests_per_minute",
    ]


def test_two_keys_alike(tmp_path: Path) -> None:
    entry = f'  - {{name: a, tenant: t, sha256: "{DIGEST}"}}\n'
    assert problems(tmp_path, "keys:\n" + entry + entry) == [
        "FILE, keys.2.name: another key has the same",
        "FILE, keys.2.sha256: another key has the same",
    ]


def test_a_stamp_follows_the_file_behind_a_link(tmp_path: Path) -> None:
    link = tmp_path / "keys"
    assert keys_file_stamp(link) is None
    for name in ("one", "two"):
        (tmp_path / name).write_text(GOOD)
    link.symlink_to(tmp_path / "one")
    before = keys_file_stamp(link)
    link.unlink()
    link.symlink_to(tmp_path / "two")
    assert keys_file_stamp(link) != before


def test_hash_keys_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "hash"
    path.write_text("a" * 16 + "\n" + "b" * 16 + "\n")
    assert read_hash_keys(path) == ["a" * 16, "b" * 16]
    for text in ("", "short", "a" * 16 + "\n" + "b" * 16 + "\n" + "c" * 16):
        path.write_text(text)
        with pytest.raises(ConfigError):
            read_hash_keys(path)


def test_the_configuration_tells_what_is_wrong_with_files_that_it_names(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing")
    with pytest.raises(ConfigError) as caught:
        from_values({"api_keys_file": missing, "tenant_hash_key_file": missing, "host": "0.0.0.0"})
    assert [problem.where for problem in caught.value.problems] == ["api_keys_file", "tenant_hash_key_file"]
    with pytest.raises(ConfigError, match="at least 16 characters"):
        from_values({"tenant_hash_key": ("short",)})
    with pytest.raises(ConfigError, match="set one of them"):
        from_values({"tenant_hash_key": ("a" * 16,), "tenant_hash_key_file": missing})
