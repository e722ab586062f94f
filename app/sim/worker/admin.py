"""What an operator or a router asks a worker: health, version, models, load, sleep state, metrics."""

import uuid

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry, generate_latest

from app.sim.worker.http import Exchange, Route
from app.sim.worker.simulated import VLLM_VERSION, SimulatedWorker, created_s

METRICS_TYPE = b"text/plain; version=1.0.0; charset=utf-8"


async def health(exchange: Exchange, worker: SimulatedWorker) -> None:
    await exchange.reply(200, b"", content_type=None)


async def version(exchange: Exchange, worker: SimulatedWorker) -> None:
    await exchange.reply_json({"version": VLLM_VERSION})


async def models(exchange: Exchange, worker: SimulatedWorker) -> None:
    created = created_s()
    cards = [
        {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": worker.options.model_profile,
            "parent": None,
            "max_model_len": worker.settings.model_len,
            "permission": [
                {
                    "id": f"modelperm-{uuid.uuid4().hex[:16]}",
                    "object": "model_permission",
                    "created": created,
                    "allow_create_engine": False,
                    "allow_sampling": True,
                    "allow_logprobs": True,
                    "allow_search_indices": False,
                    "allow_view": True,
                    "allow_fine_tuning": False,
                    "organization": "*",
                    "group": None,
                    "is_blocking": False,
                }
            ],
        }
        for name in worker.options.served_model_names
    ]
    await exchange.reply_json({"object": "list", "data": cards})


async def load(exchange: Exchange, worker: SimulatedWorker) -> None:
    """Requests running and queued; always 0 unless tracking was asked for, as in vLLM."""
    engine = worker.engine
    tracked = worker.options.enable_server_load_tracking
    await exchange.reply_json({"server_load": engine.running + len(engine.waiting) if tracked else 0})


async def is_sleeping(exchange: Exchange, worker: SimulatedWorker) -> None:
    await exchange.reply_json({"is_sleeping": False})


async def kv_event_sources(exchange: Exchange, worker: SimulatedWorker) -> None:
    """None: a simulated worker publishes no KV events."""
    await exchange.reply_json({})


async def metrics(exchange: Exchange, worker: SimulatedWorker) -> None:
    """The process's own families first (`process_start_time_seconds` tells incarnations apart), then vLLM's."""
    process = CollectorRegistry()
    for collector in (GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR):
        process.register(collector)
    text = generate_latest(process) + worker.observations.render().encode()
    await exchange.reply(200, text, content_type=METRICS_TYPE)


ROUTES = (
    Route("GET", "/health", health),
    Route("GET", "/ping", health),
    Route("POST", "/ping", health),
    Route("GET", "/version", version),
    Route("GET", "/v1/models", models),
    Route("GET", "/load", load),
    Route("GET", "/kv_event_sources", kv_event_sources),
    Route("GET", "/is_sleeping", is_sleeping),
    Route("GET", "/metrics", metrics),
)
