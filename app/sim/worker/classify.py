"""POST /classify: a label and its probabilities per input; always as JSON, whatever encoding is asked for."""

import math
from array import array

from app.sim.worker.fields import choose
from app.sim.worker.http import Exchange, Route
from app.sim.worker.options import WorkerOptions
from app.sim.worker.pooled import forms, head_of, prompts_to_read, refuse_removed, run_prompts
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.usage import pooled_usage
from app.sim.worker.vectors import logits, softmax


async def classify(exchange: Exchange, worker: SimulatedWorker) -> None:
    body = await exchange.json()
    refuse_removed(body)
    request = choose(body, forms(encoded=False))
    prompts = prompts_to_read(request, worker)
    tokens = await run_prompts(exchange, worker, prompts)
    labels = labels_of(worker.options)
    items = []
    for index, prompt in enumerate(prompts):
        values = class_values(prompt.text, worker.options, activated=request.activated)
        label = labels[values.index(max(values))]
        items.append({"index": index, "label": label, "probs": values, "num_classes": len(labels)})
    await exchange.reply_json({**head_of("classify", exchange, worker), "data": items, "usage": pooled_usage(tokens)})


def labels_of(options: WorkerOptions) -> tuple[str, ...]:
    """A scoring model is a classifier with one nameless label."""
    return options.labels if options.task == "classify" else ("LABEL_0",)


def class_values(text: str, options: WorkerOptions, *, activated: bool) -> list[float]:
    """Probabilities per label, or the raw logits; one label alone goes through a sigmoid. They are float32 values."""
    raw = logits(text, labels_of(options), options.embedding_dim)
    if not activated:
        return array("f", raw).tolist()
    return array("f", softmax(raw) if len(raw) > 1 else [1 / (1 + math.exp(-raw[0]))]).tolist()


ROUTES = (Route("POST", "/classify", classify, tasks=("classify", "score")),)
