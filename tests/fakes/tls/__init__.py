"""A certificate for `gpu-1.test`, for workers that speak TLS in tests."""

import ssl
from pathlib import Path

CERTIFICATE = str(Path(__file__).with_name("gpu-1.test.pem"))

NAME = "gpu-1.test"


def server_tls(asked: list[str | None]) -> ssl.SSLContext:
    """The worker's side. `asked` gets the name that each client asks for, None for one that asks for none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    context.sni_callback = lambda connection, name, context: asked.append(name)
    return context
