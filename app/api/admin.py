"""The admin listener's application: which workers there are, adding and removing them, and the status of this process.

Rule 1: the key, when one is set, is asked for before anything of the request is read; /livez and /readyz are open.
Rule 2: without a key the listener trusts whoever can connect (the configuration allows that on loopback only). A web
page in the operator's browser can connect too, so a request must name the listener by address or as localhost, which a
rebound DNS name does not, and must not come from a page of another site.
Rule 3: every error is in OpenAI's shape, and every change is one line in the log: who, what, which worker.
"""

import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal, Protocol, TypeVar

import orjson
from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException as AnyHTTPException

from app.api.auth import Keys
from app.api.errors import SHAPES, EdgeReason
from app.api.monitoring import readiness
from app.core.fleet.errors import DestinationRefused, NameUnknown, StoreUnavailable
from app.core.fleet.order import MAX_REASON, MOST_S, Order, OrderKind
from app.core.fleet.registry import Registration
from app.core.fleet.tenant import Plane

log = logging.getLogger("warmset.admin")

BODY_MAX = 16 * 1024
"""Bytes of a request body."""

SHOWN_URL = 200
"""Characters of a refused URL that the log repeats."""

KEY_NAME = "warmset.key_name"
"""Where the guard leaves, in the scope, the name of the key that let a request in; None where no key is asked for."""

NOTHING: Mapping[str, Any] = {}

ORDER_EXAMPLE = 'send {"reason": "why", "expires_in_secs": 3600}'

Body = TypeVar("Body", bound=BaseModel)

OPEN_PATHS = ("/livez", "/readyz")

CODES = {
    400: "invalid_request",
    401: "invalid_api_key",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "other_incarnation",
    413: "body_too_large",
    503: "store_unavailable",
}


TYPES = {401: "authentication_error", 403: "permission_error"}


class Workers(Protocol):
    """What the admin API asks of the fleet (`app.runtime.fleet.Fleet`)."""

    def describe(self) -> list[dict[str, Any]]: ...

    async def add(self, url: str) -> tuple[Registration, bool]:
        """The registration, and whether it is new.

        Raises ValueError for a bad URL, DestinationRefused, NameUnknown, and StoreUnavailable.
        """
        ...

    async def order(self, worker: str, order: Order | None) -> bool:
        """False for a worker that is not registered. Raises StoreUnavailable."""
        ...

    async def remove(
        self, worker: str, incarnation: str | None
    ) -> Literal["removed", "unknown", "other_incarnation"]: ...


class NewWorker(BaseModel):
    """The body of POST /workers."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: str


class NewOrder(BaseModel):
    """The body of POST /workers/{id}/cordon, /drain and /force-in."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON)]
    expires_in_secs: Annotated[float, Field(gt=0, le=MOST_S, allow_inf_nan=False)]


def make_admin_app(
    fleet: Workers,
    status: Callable[[], Awaitable[dict[str, Any]]],
    not_ready: Callable[[], str | None],
    keys: Keys,
    clock: Callable[[], float],
    *,
    may_be_open: bool,
) -> FastAPI:
    """status: the document of GET /status. not_ready: why this gateway should get no traffic, None when it should.

    keys: of the admin plane. clock: monotonic seconds. may_be_open: without any key it is open, see rule 2.
    """
    app = FastAPI(title="warmset admin", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_middleware(_Guard, keys=keys, may_be_open=may_be_open)
    app.add_exception_handler(AnyHTTPException, _refused)
    app.add_exception_handler(Exception, _failed)

    @app.get("/workers")
    async def list_workers() -> Response:
        workers = fleet.describe()
        return _json(200, {"workers": workers, "total": len(workers)})

    @app.get("/workers/{worker_id}")
    async def show_worker(worker_id: str) -> Response:
        return _json(200, _find(fleet, worker_id))

    @app.post("/workers")
    async def add_worker(request: Request) -> Response:
        wanted = _parse(NewWorker, await _read(request), 'send {"url": "http://host:port"}')
        try:
            registration, created = await fleet.add(wanted.url)
        except ValueError as error:
            raise HTTPException(400, {"message": str(error), "param": "url"}) from None
        except DestinationRefused as error:
            log.warning("worker refused", extra={"url": wanted.url[:SHOWN_URL]} | _who(request))
            detail = {"message": str(error), "param": "url", "code": "worker_url_not_allowed"}
            raise HTTPException(403, detail) from None
        except NameUnknown as error:
            detail = {"message": f"nothing was added: {error}", "param": "url", "code": "worker_name_unknown"}
            raise HTTPException(400, detail) from None
        except StoreUnavailable as error:
            raise _without_store(error) from None
        if created:
            _note("worker added by admin", registration.id, request)
        described = [worker for worker in fleet.describe() if worker["id"] == registration.id]
        return _json(201 if created else 200, described[0] if described else _as_json(registration))

    @app.delete("/workers/{worker_id}")
    async def remove_worker(worker_id: str, request: Request, incarnation: str | None = None) -> Response:
        try:
            result = await fleet.remove(worker_id, incarnation)
        except StoreUnavailable as error:
            raise _without_store(error) from None
        if result == "unknown":
            raise _no_such(worker_id)
        if result == "other_incarnation":
            message = f"worker {worker_id!r} is registered with another incarnation than the one given"
            raise HTTPException(409, {"message": message, "param": "incarnation"})
        _note("worker removed by admin", worker_id, request)
        return _json(200, {"id": worker_id, "removed": True})

    @app.post("/workers/{worker_id}/uncordon")
    async def uncordon_worker(worker_id: str, request: Request) -> Response:
        return await say(worker_id, "uncordon", None, request)

    def takes(kind: OrderKind) -> Callable[[str, Request], Awaitable[Response]]:
        async def order(worker_id: str, request: Request) -> Response:
            return await order_worker(worker_id, kind, request)

        return order

    for kind in OrderKind:
        app.add_api_route(f"/workers/{{worker_id}}/{kind.value}", takes(kind), methods=["POST"])

    async def order_worker(worker_id: str, kind: OrderKind, request: Request) -> Response:
        asked = _parse(NewOrder, await _read(request), ORDER_EXAMPLE)
        if not asked.reason.isprintable() or not asked.reason.strip():
            raise HTTPException(400, {"message": "reason: must be printable text, on one line", "param": "reason"})
        who = _who(request)
        order = Order(kind, asked.reason, who["key"] or who["client"] or "admin", clock() + asked.expires_in_secs)
        return await say(worker_id, kind.value, order, request, {"expires_in_secs": asked.expires_in_secs})

    async def say(
        worker_id: str, verb: str, order: Order | None, request: Request, more: Mapping[str, Any] = NOTHING
    ) -> Response:
        try:
            is_known = await fleet.order(worker_id, order)
        except StoreUnavailable as error:
            raise _without_store(error) from None
        if not is_known:
            raise _no_such(worker_id)
        reason = {"reason": order.reason} if order is not None else {}
        _note("worker ordered by admin", worker_id, request, {"order": verb, **reason, **more})
        return _json(200, _find(fleet, worker_id))

    @app.get("/status")
    async def show_status() -> Response:
        return _json(200, await status())

    @app.get("/livez")
    async def livez() -> Response:
        return _json(200, {"status": "live"})

    @app.get("/readyz")
    async def readyz() -> Response:
        code, body = readiness(not_ready())
        return Response(body, code, media_type="application/json")

    return app


class _Guard:
    """Rules 1 and 2, as pure ASGI: before routing, and before the body."""

    def __init__(self, app: Any, keys: Keys, may_be_open: bool) -> None:
        self._app = app
        self._keys = keys
        self._was_keyed = not may_be_open

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" and scope["path"] not in OPEN_PATHS else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Any) -> Response | None:
        # A keys file that loses its last admin key must not open what was closed.
        self._was_keyed = self._was_keyed or self._keys.ring.has_plane(Plane.ADMIN)
        found = self._keys.identify(scope["headers"]) if self._was_keyed else None
        if found is EdgeReason.WRONG_PLANE:
            message = "This key is not for the admin API."
            return _error(403, message, code=SHAPES[found].code, headers={"connection": "close"})
        if isinstance(found, EdgeReason):
            message = "No valid admin key. Send it as 'Authorization: Bearer KEY'."
            return _error(401, message, headers={"www-authenticate": "Bearer", "connection": "close"})
        host = _header(scope, b"host")
        origin = _header(scope, b"origin")
        scope[KEY_NAME] = found.name if found is not None else None
        if not self._was_keyed and not _is_local_name(host):
            message = (
                "Without admin_api_key this listener is reached by its IP address or as localhost only; "
                "set admin_api_key to reach it by name."
            )
            return _error(403, message, headers={"connection": "close"})
        if origin and origin.partition("://")[2].lower() != host.lower():
            return _error(403, "This request comes from a web page of another site.", headers={"connection": "close"})
        return None


def _header(scope: Any, wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), "")


def _is_local_name(host: str) -> bool:
    """Whether a Host header is an IP address or localhost: names that no foreign DNS server can point here."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _read(request: Request) -> bytes:
    """The body, counted while it comes."""
    pieces = b""
    async for piece in request.stream():
        pieces += piece
        if len(pieces) > BODY_MAX:
            raise HTTPException(413, f"the body is larger than {BODY_MAX} bytes", {"connection": "close"})
    return pieces


def _parse(form: type[Body], body: bytes, example: str) -> Body:
    try:
        return form.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        param = ".".join(map(str, first["loc"])) or None
        raise HTTPException(400, {"message": f"{param or 'body'}: {first['msg']}; {example}", "param": param}) from None


def _find(fleet: Workers, worker_id: str) -> dict[str, Any]:
    for worker in fleet.describe():
        if worker["id"] == worker_id:
            return worker
    raise _no_such(worker_id)


def _no_such(worker_id: str) -> HTTPException:
    return HTTPException(404, {"message": f"no worker {worker_id!r} is registered; GET /workers lists them"})


def _without_store(error: StoreUnavailable) -> HTTPException:
    message = f"nothing was changed, since other replicas would not learn of it: {error}"
    return HTTPException(503, {"message": message}, {"retry-after": "1"})


def _as_json(registration: Registration) -> dict[str, Any]:
    return {
        "id": registration.id,
        "url": registration.url,
        "incarnation": registration.incarnation,
        "source": registration.source.value,
    }


def _note(event: str, worker_id: str, request: Request, more: Mapping[str, Any] = NOTHING) -> None:
    """A change was made."""
    log.info(event, extra={"worker": worker_id} | _who(request) | dict(more))


def _who(request: Request) -> dict[str, Any]:
    """Who asked, for the log. The key's name, never the key."""
    client = f"{request.client.host}:{request.client.port}" if request.client else ""
    return {"key": request.scope[KEY_NAME], "client": client}


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)
    detail: Any = error.detail
    given = detail if isinstance(detail, dict) else {"message": detail}
    param, code = given.get("param"), given.get("code")
    return _error(error.status_code, given["message"], param, code, headers=dict(error.headers or {}))


async def _failed(request: Request, error: Exception) -> Response:
    """The server logs the error itself; its text is not for the client."""
    return _error(500, "The gateway failed; its log has the cause.")


def _error(
    status: int,
    message: str,
    param: str | None = None,
    code: str | None = None,
    *,
    headers: dict[str, str] | None = None,
) -> Response:
    kind = "server_error" if status >= 500 else TYPES.get(status, "invalid_request_error")
    code = code or CODES.get(status) or HTTPStatus(status).phrase.lower().replace(" ", "_")
    return _json(status, {"error": {"message": message, "type": kind, "param": param, "code": code}}, headers)


def _json(status: int, content: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, headers, "application/json")
