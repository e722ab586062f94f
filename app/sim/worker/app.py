"""The ASGI callable: finds the route, checks the key, and turns refusals into vLLM's answers."""

import hmac
from collections.abc import Iterable
from typing import Any

from app.sim.worker.errors import ApiError, ClientGone
from app.sim.worker.http import Exchange, Message, Receive, Route, Send
from app.sim.worker.simulated import SimulatedWorker

Answer = tuple[int, bytes]
NOT_FOUND: Answer = (404, b'{"detail":"Not Found"}')
METHOD_NOT_ALLOWED: Answer = (405, b'{"detail":"Method Not Allowed"}')
UNAUTHORIZED: Answer = (401, b'{"error":"Unauthorized"}')
# As in vLLM, a key guards what lies under these; health, metrics, the tokenizer and the unversioned paths stay open.
GUARDED = ("/v1", "/v2", "/inference", "/cohere")


class App:
    """Routes of one worker. Endpoints of other tasks do not exist here, so they answer 404 as unknown ones do."""

    def __init__(self, worker: SimulatedWorker, routes: Iterable[Route]) -> None:
        self._worker = worker
        self._routes: dict[str, dict[str, Route]] = {}
        for route in routes:
            if not route.tasks or worker.options.task in route.tasks:
                self._routes.setdefault(route.path, {})[route.method] = route
        key = worker.options.api_key
        self._key = key.encode() if key else None

    async def __call__(self, scope: dict[str, Any] | Message, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, echoes_request_id=self._worker.options.enable_request_id_headers)
        try:
            await self._answer(exchange)
        except ClientGone:
            return
        except ApiError as error:
            await exchange.reply(error.status, error.body())
        except Exception as error:
            # A fault of this program is told as vLLM tells its own, and then logged by the server.
            if not exchange.started:
                await exchange.reply(500, ApiError(500, str(error)).body())
            raise

    async def _answer(self, exchange: Exchange) -> None:
        if self._key is not None and exchange.path.startswith(GUARDED):
            scheme, _, given = exchange.headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(given, self._key):
                status, body = UNAUTHORIZED
                await exchange.reply(status, body, headers=())  # sent before the layer that adds `vary`
                return
        methods = self._routes.get(exchange.path)
        if methods is None:
            await exchange.reply(*NOT_FOUND)
            return
        route = methods.get(exchange.method)
        if route is None:
            allow = (b"allow", ", ".join(methods).encode())
            await exchange.reply(*METHOD_NOT_ALLOWED, leading=(allow,))
            return
        await route.handle(exchange, self._worker)
