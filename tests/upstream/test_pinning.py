"""Where the data path connects to: to the address that a worker is pinned to, and to nothing that it is told."""

import asyncio
import ssl
from collections.abc import AsyncIterator

import pytest

from app.core.fleet.exchange import Call, UpstreamError
from app.core.fleet.reasons import Failure
from app.core.fleet.worker import Worker
from app.upstream.client import HttpUpstream
from app.upstream.connection import ExchangeLimits
from tests.fakes.raw_worker import OK, Connected, RawWorker, answer_all
from tests.fakes.tls import CERTIFICATE, NAME, server_tls

POST = (b"POST", b"/v1/completions", (), b"{}")


@pytest.fixture
async def upstream() -> AsyncIterator[HttpUpstream]:
    tls = ssl.create_default_context(cafile=CERTIFICATE)
    client = HttpUpstream(connect_timeout_s=2.0, limits=ExchangeLimits(5.0, 5.0, 5.0), tls=tls)
    yield client
    client.close()


async def ask(upstream: HttpUpstream, url: str, address: str = "") -> int:
    answer = await upstream.send(Worker("w", url, "1", address=address), Call(*POST))
    while await answer.read():
        pass
    return answer.status


async def test_a_name_is_told_and_never_looked_up(upstream: HttpUpstream) -> None:
    async with RawWorker() as worker:
        # Nobody knows this name, so that a look-up would fail.
        assert await ask(upstream, f"http://gpu-1.invalid:{worker.port}", "127.0.0.1") == 200
        assert b"\r\nhost: gpu-1.invalid:%d\r\n" % worker.port in worker.requests[0][0]


async def test_without_an_address_a_name_is_connected_to_nowhere(upstream: HttpUpstream) -> None:
    async with RawWorker() as worker:
        with pytest.raises(UpstreamError, match="not looked up") as failed:
            await ask(upstream, f"http://localhost:{worker.port}")
        assert failed.value.failure is Failure.CONNECT
        assert not worker.connections
        assert await ask(upstream, worker.url) == 200, "an address needs none"


async def test_another_address_is_another_place_also_for_kept_connections(upstream: HttpUpstream) -> None:
    async with RawWorker() as one, RawWorker(host="127.0.0.2", port=one.port) as two:
        url = f"http://gpu-1.invalid:{one.port}"
        for address in ("127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"):
            assert await ask(upstream, url, address) == 200
        assert [len(worker.requests) for worker in (one, two)] == [2, 2]
        assert [len(worker.connections) for worker in (one, two)] == [1, 1]


async def test_what_runs_at_the_old_address_ends_there(upstream: HttpUpstream) -> None:
    go_on = asyncio.Event()

    async def slow(connection: Connected) -> None:
        await connection.read_request()
        await go_on.wait()
        await connection.send(OK)

    async with RawWorker(slow) as one, RawWorker(host="127.0.0.2", port=one.port) as two:
        url = f"http://gpu-1.invalid:{one.port}"
        running = asyncio.ensure_future(ask(upstream, url, "127.0.0.1"))
        assert await ask(upstream, url, "127.0.0.2") == 200
        go_on.set()
        assert await running == 200
        assert len(two.requests) == 1


async def test_with_tls_the_certificate_is_the_names(upstream: HttpUpstream) -> None:
    asked: list[str | None] = []
    async with RawWorker(tls=server_tls(asked)) as worker:
        assert await ask(upstream, f"https://{NAME}:{worker.port}", "127.0.0.1") == 200
        assert asked == [NAME]
        # Pinned to the same place, and not who it should be.
        for url in (f"https://other.test:{worker.port}", f"https://127.0.0.1:{worker.port}"):
            with pytest.raises(UpstreamError, match="certificate") as failed:
                await ask(upstream, url, "127.0.0.1")
            assert failed.value.failure is Failure.CONNECT
        assert len(worker.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer(upstream: HttpUpstream, status: int) -> None:
    async with RawWorker() as elsewhere:
        location = f"{elsewhere.url}/v1/completions".encode()

        async def redirect(connection: Connected) -> None:
            await connection.read_request()
            head = b"HTTP/1.1 %d X\r\nlocation: %s\r\ncontent-length: 0\r\n\r\n"
            await connection.send(head % (status, location))
            await answer_all(connection)

        async with RawWorker(redirect) as worker:
            assert await ask(upstream, worker.url) == status
        assert not elsewhere.connections
