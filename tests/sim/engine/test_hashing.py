"""Prefix blocks: equal hashes exactly for equal prefixes, the same in every process."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from app.sim.engine import chain_hashes

TOKENS = [b"a", b"b", b"c", b"d", b"e"]
PIECES = st.lists(st.sampled_from([b"a", b"b", b"ab"]), max_size=24)


def test_only_full_blocks_have_a_hash() -> None:
    assert [len(chain_hashes(TOKENS[:n], 2)) for n in range(6)] == [0, 0, 1, 1, 2, 2]


def test_a_salt_shares_nothing() -> None:
    assert not set(chain_hashes(TOKENS, 2)) & set(chain_hashes(TOKENS, 2, b"tenant"))


def test_the_same_text_cut_otherwise_is_another_prefix() -> None:
    assert chain_hashes([b"ab", b"c"], 2) != chain_hashes([b"a", b"bc"], 2)


@given(PIECES, PIECES)
def test_hashes_agree_exactly_as_far_as_the_blocks_do(first: list[bytes], second: list[bytes]) -> None:
    pairs = zip(chain_hashes(first, 2), chain_hashes(second, 2), strict=False)
    for index, (one, other) in enumerate(pairs):
        end = 2 * (index + 1)
        assert (one == other) == (first[:end] == second[:end])


@given(PIECES, st.integers(0, 12))
def test_going_on_from_known_hashes_changes_nothing(tokens: list[bytes], known: int) -> None:
    whole = chain_hashes(tokens, 2, b"salt")
    assert chain_hashes(tokens, 2, b"salt", whole[:known]) == whole


def test_hashes_do_not_depend_on_the_process() -> None:
    program = "from app.sim.engine import chain_hashes; print(chain_hashes([b'a', b'b'], 2)[0].hex())"
    shown = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert shown == {chain_hashes([b"a", b"b"], 2)[0].hex() + "\n"}
