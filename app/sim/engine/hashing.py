"""Names of prefix blocks: each hash covers its block and everything before it, so equal hashes mean equal prefixes."""

from collections.abc import Hashable, Sequence
from hashlib import blake2b

# Any value that compares equal exactly when the prefixes do: bytes from here, or the integer ids of a trace.
BlockHash = Hashable


def chain_hashes(
    tokens: Sequence[bytes], block_size: int, salt: bytes = b"", known: Sequence[bytes] = ()
) -> list[bytes]:
    """Hash every full block of `tokens` (one bytes value per token); a different `salt` shares nothing.

    The tail that does not fill a block has no hash, since it cannot be shared. `known` are the hashes of the leading
    blocks where they are known already.
    """
    hashes = list(known)
    parent = hashes[-1] if hashes else blake2b(salt, digest_size=16).digest()
    for end in range((len(hashes) + 1) * block_size, len(tokens) + 1, block_size):
        # NUL between tokens: otherwise the same text cut into other tokens would look equal.
        block = b"\0".join(tokens[end - block_size : end])
        parent = blake2b(parent + block, digest_size=16).digest()
        hashes.append(parent)
    return hashes
