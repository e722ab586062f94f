"""POST /classify: a label and its probabilities per input."""

import math

from app.sim.worker.http import Exchange, Route
from app.sim.worker.options import WorkerOptions
from app.sim.worker.pooled import head_of, read_inputs, run_pooled, usage_of
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.vectors import logits, softmax


async def classify(exchange: Exchange, worker: SimulatedWorker) -> None:
    fields = await exchange.fields()
    activated = fields.flag("use_activation", default=True)
    texts = read_inputs(fields, worker)
    tokens = await run_pooled(exchange, worker, texts)
    labels = labels_of(worker.options)
    items = []
    for index, text in enumerate(texts):
        values = class_values(text, worker.options, activated=activated)
        label = labels[values.index(max(values))]
        items.append({"index": index, "label": label, "probs": values, "num_classes": len(labels)})
    await exchange.reply_json({**head_of("classify", exchange, worker), "data": items, "usage": usage_of(tokens)})


def labels_of(options: WorkerOptions) -> tuple[str, ...]:
    """A scoring model is a classifier with one nameless label."""
    return options.labels if options.task == "classify" else ("LABEL_0",)


def class_values(text: str, options: WorkerOptions, *, activated: bool) -> list[float]:
    """Probabilities per label, or the raw logits; one label alone goes through a sigmoid."""
    raw = logits(text, labels_of(options), options.embedding_dim)
    if not activated:
        return raw
    return softmax(raw) if len(raw) > 1 else [1 / (1 + math.exp(-raw[0]))]


ROUTES = (Route("POST", "/classify", classify, tasks=("classify", "score")),)
