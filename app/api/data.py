"""The data listener's application: which request goes where. Pure ASGI."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from app.api.endpoints import ENDPOINTS
from app.api.errors import EdgeReason, Reason
from app.api.families import Family
from app.api.headers import request_id
from app.api.limits import has_body
from app.api.models import MayUse, find_model, list_models
from app.api.proxy import Proxy
from app.api.respond import Receive, Scope, Send, send_json, send_refusal, without_the_body
from app.core.fleet.exchange import Header
from app.core.fleet.reasons import RefusalReason
from app.core.router import Router
from app.core.tenants.keyring import may_use

MODELS = b"/v1/models"
HEALTH = (b"/health", b"/ping")


class DataPlane:
    """not_ready: why this gateway should get no traffic, None when it should. on_refused: told of every refusal of a
    request that is not the proxy's."""

    def __init__(
        self,
        proxy: Proxy,
        router: Router,
        aliases: Mapping[str, str],
        not_ready: Callable[[], str | None],
        on_refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._proxy = proxy
        self._router = router
        self._aliases = aliases
        self._not_ready = not_ready
        self._on_refused = on_refused
        self._endpoints = {endpoint.path.encode(): endpoint for endpoint in ENDPOINTS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # uvicorn is told to offer neither lifespan nor websockets
        # The raw path is what counts: decoded or rebuilt ones let two spellings of one path have different meanings.
        path: bytes = scope["raw_path"]
        endpoint = self._endpoints.get(path)
        if endpoint is not None and scope["method"] == "POST":
            await self._proxy.serve(endpoint, scope, receive, send)
            return
        if has_body(scope["headers"]):
            send = without_the_body(scope, send)
        if path in HEALTH:
            await self._health(scope, send)
        else:
            await self._answer(path, scope, send)

    async def _answer(self, path: bytes, scope: Scope, send: Send) -> None:
        """Everything that no worker is asked."""
        header = self._id_header(scope)
        grant = self._proxy.keys.identify(scope["headers"])
        if isinstance(grant, EdgeReason):
            await self._refuse(send, grant, headers=[header])
        elif path in self._endpoints or path == MODELS or path.startswith(MODELS + b"/"):
            allowed = b"POST" if path in self._endpoints else b"GET"
            if scope["method"] != allowed.decode():
                allow = (b"allow", allowed)
                await self._refuse(send, EdgeReason.METHOD_NOT_ALLOWED, headers=[header, allow])
            elif path == MODELS:
                await send_json(send, 200, list_models(self._router, self._aliases, partial(may_use, grant)), [header])
            else:
                await self._one_model(path[len(MODELS) + 1 :], partial(may_use, grant), header, send)
        else:
            served = "served are GET /v1/models and POST " + ", ".join(endpoint.path for endpoint in ENDPOINTS)
            await self._refuse(send, EdgeReason.UNKNOWN_PATH, served, [header])

    async def _one_model(self, raw_name: bytes, may: MayUse, header: Header, send: Send) -> None:
        entry = find_model(self._router, self._aliases, raw_name, may)
        if entry is None:
            await self._refuse(send, RefusalReason.MODEL_NOT_FOUND, headers=[header])
        else:
            await send_json(send, 200, entry, [header])

    async def _refuse(self, send: Send, reason: Reason, detail: str = "", headers: Sequence[Header] = ()) -> None:
        self._on_refused(reason.value)
        await send_refusal(send, Family.OPENAI, reason, detail, headers)

    async def _health(self, scope: Scope, send: Send) -> None:
        """As vLLM's: 200 and nothing when ready. Open without a key, since load balancers have none."""
        cause = self._not_ready()
        if cause is None:
            await send_json(send, 200, b"")
        else:
            await send_refusal(send, Family.OPENAI, RefusalReason.NO_WORKERS, cause, [self._id_header(scope)])

    def _id_header(self, scope: Scope) -> Header:
        return b"x-request-id", request_id(scope["headers"], self._proxy.new_id).encode("ascii")
