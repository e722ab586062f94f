"""POST /pooling: the raw numbers of a pooling model, in every encoding."""

from app.sim.worker.classify import class_values
from app.sim.worker.encoding import read_encoding, reply_vectors
from app.sim.worker.errors import bad_value
from app.sim.worker.fields import Fields, choose
from app.sim.worker.http import Exchange, Route
from app.sim.worker.pooled import (
    PoolingRequest,
    forms,
    head_of,
    prompts_to_read,
    read_cut,
    refuse_removed,
    run_prompts,
)
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.vectors import embed

TASKS = ("embed", "classify", "token_embed", "token_classify", "plugin", "embed&token_classify")


async def pooling(exchange: Exchange, worker: SimulatedWorker) -> None:
    body = await exchange.json()
    refuse_removed(body)
    request = choose(body, (*forms(encoded=True, tasks=TASKS), _for_a_plugin))
    options = worker.options
    _check_task(request, "embed" if options.task == "embed" else "classify")
    prompts = prompts_to_read(request, worker)
    tokens = await run_prompts(exchange, worker, prompts)
    if options.task == "embed":
        vectors = [embed(prompt.text, options.embedding_dim, activated=request.activated) for prompt in prompts]
    else:
        vectors = [class_values(prompt.text, options, activated=request.activated) for prompt in prompts]
    head = head_of("pooling", exchange, worker)
    await reply_vectors(exchange, head, vectors, request.encoding, tokens, kind="pooling", field="data")


def _for_a_plugin(fields: Fields) -> PoolingRequest:
    """The form with `data`, which a plugin of vLLM would understand."""
    encoding = read_encoding(fields)
    model, cut = fields.text("model"), read_cut(fields)
    fields.require("data")
    fields.setting("task", TASKS)
    return PoolingRequest(model=model, cut=cut, encoding=encoding, task="plugin")


def _check_task(request: PoolingRequest, own: str) -> None:
    """400 for a task that this model does not do; per-token tasks would need another start of vLLM."""
    if request.dimensions is not None:
        raise bad_value("dimensions is currently not supported", "dimensions")
    if request.task is None or request.task == own:
        return
    per_token = f"token_{own}"
    if request.task == "plugin":
        message = (
            "No IOProcessor plugin installed. Please refer to the documentation and to the "
            "'prithvi_geospatial_mae_io_processor' offline inference example for more details."
        )
    elif request.task == per_token:
        message = f"Try switching the model's pooling_task via --pooler-config.task {request.task}."
    else:
        message = f"Unsupported task: {request.task!r} Supported tasks: {[per_token, own]}"
    raise bad_value(message, "task")


ROUTES = (Route("POST", "/pooling", pooling, tasks=("embed", "classify", "score")),)
