"""What a worker's URL may be, and the name that follows from it."""

from urllib.parse import urlsplit


def parse_worker_url(url: str) -> str:
    """The URL in the one form that is compared and stored. ValueError says which rule it breaks."""
    parts = urlsplit(url.strip())
    if parts.username is not None or parts.password is not None:  # first, so that no message below quotes a password
        raise ValueError("a worker URL must not carry a user or password; use worker_api_key")
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{url!r} must begin with http:// or https://")
    if not parts.hostname:
        raise ValueError(f"{url!r} names no host")
    if parts.query or parts.fragment:
        raise ValueError(f"{url!r} must not have a query or fragment")
    if any(character.isspace() or not character.isprintable() for character in url.strip()):
        raise ValueError("a worker URL must not contain spaces or control characters")
    port = parts.port  # ValueError when it is not a number from 0 to 65535
    if port == 0:
        raise ValueError(f"{url!r} names port 0")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default = 443 if parts.scheme == "https" else 80
    return f"{parts.scheme}://{host}:{port or default}{parts.path.rstrip('/')}"


def worker_id(url: str) -> str:
    """The stable name of the address: `host:port`, and the path prefix with `~` for `/`. Of a parsed URL."""
    parts = urlsplit(url)
    return parts.netloc + parts.path.replace("/", "~")
