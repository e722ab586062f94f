"""POST /pooling: the raw numbers of a pooling model, in every encoding."""

from app.sim.worker.classify import class_values
from app.sim.worker.errors import bad_value
from app.sim.worker.http import Exchange, Route
from app.sim.worker.pooled import head_of, read_encoding, read_inputs, reply_vectors, run_pooled
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.vectors import embed

TASKS = ("embed", "classify", "token_embed", "token_classify", "plugin", "embed&token_classify")


async def pooling(exchange: Exchange, worker: SimulatedWorker) -> None:
    fields = await exchange.fields()
    encoding = read_encoding(fields)
    asked = fields.choice("task", TASKS)
    activated = fields.flag("use_activation", default=True)
    texts = read_inputs(fields, worker, alternatives=("messages", "data"))
    _check_task(asked, "embed" if worker.options.task == "embed" else "classify")
    tokens = await run_pooled(exchange, worker, texts)
    options = worker.options
    if options.task == "embed":
        vectors = [embed(text, options.embedding_dim) for text in texts]
    else:
        vectors = [class_values(text, options, activated=activated) for text in texts]
    head = head_of("pooling", exchange, worker)
    await reply_vectors(exchange, head, vectors, encoding, tokens, kind="pooling", field="data")


def _check_task(asked: str | None, own: str) -> None:
    """400 for a task that this model does not do; per-token tasks would need another start of vLLM."""
    per_token = f"token_{own}"
    if asked is None or asked == own:
        return
    if asked == per_token:
        raise bad_value(f"Try switching the model's pooling_task via --pooler-config.task {asked}.", "task")
    raise bad_value(f"Unsupported task: '{asked}' Supported tasks: {[per_token, own]}", "task")


ROUTES = (Route("POST", "/pooling", pooling, tasks=("embed", "classify", "score")),)
