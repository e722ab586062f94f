"""Paths of vLLM's disaggregated serving: a server that was not started for it has them, and refuses them."""

from app.sim.worker.errors import ApiError
from app.sim.worker.http import Exchange, Route
from app.sim.worker.simulated import SimulatedWorker

PATHS = (
    "/v1/chat/completions/render",
    "/v1/messages/render",
    "/v1/completions/render",
    "/v1/responses/render",
    "/v1/chat/completions/derender",
    "/v1/completions/derender",
    "/inference/v1/generate",
    "/inference/v1/abort_requests",
)


async def refuse(exchange: Exchange, worker: SimulatedWorker) -> None:
    raise ApiError(403, "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.")


ROUTES = tuple(Route("POST", path, refuse, tasks=("generate",)) for path in PATHS)
