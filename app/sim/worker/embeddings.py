"""POST /v1/embeddings (OpenAI)."""

from app.sim.worker.encoding import reply_vectors
from app.sim.worker.errors import ApiError
from app.sim.worker.fields import choose
from app.sim.worker.http import Exchange, Route
from app.sim.worker.pooled import forms, head_of, prompts_to_read, refuse_removed, run_prompts
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.vectors import embed


async def embeddings(exchange: Exchange, worker: SimulatedWorker) -> None:
    body = await exchange.json()
    refuse_removed(body)
    request = choose(body, forms(encoded=True))
    prompts = prompts_to_read(request, worker)
    check_dimensions(request.dimensions, worker)
    tokens = await run_prompts(exchange, worker, prompts)
    dimension = worker.options.embedding_dim
    vectors = [embed(prompt.text, dimension, activated=request.activated) for prompt in prompts]
    head = head_of("embd", exchange, worker)
    await reply_vectors(exchange, head, vectors, request.encoding, tokens, kind="embedding", field="embedding")


def check_dimensions(wanted: int | None, worker: SimulatedWorker) -> None:
    """400 whenever the client chooses: the model has one length."""
    if wanted is not None:
        message = (
            f"Model '{worker.model_name}' does not support Matryoshka embeddings; dimensions must be unset "
            f"(received dimensions={wanted})."
        )
        raise ApiError(400, message)


ROUTES = (Route("POST", "/v1/embeddings", embeddings, tasks=("embed",)),)
