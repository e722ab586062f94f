"""POST /v1/embeddings (OpenAI) and /v2/embed (Cohere)."""

from app.sim.worker.errors import ApiError
from app.sim.worker.http import Exchange, Route
from app.sim.worker.pooled import Encoding, head_of, read_encoding, read_inputs, reply_vectors, run_pooled
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.tokens import tokenize
from app.sim.worker.vectors import embed


async def embeddings(exchange: Exchange, worker: SimulatedWorker) -> None:
    fields = await exchange.fields()
    encoding = read_encoding(fields)
    dimensions = fields.integer("dimensions")
    texts = read_inputs(fields, worker)
    own = worker.options.embedding_dim
    if dimensions is not None and dimensions != own:
        message = (
            f"Model '{worker.model_name}' does not support Matryoshka embeddings; dimensions must be unset "
            f"(received dimensions={dimensions})."
        )
        raise ApiError(400, message)
    tokens = await run_pooled(exchange, worker, texts)
    vectors = [embed(text, own) for text in texts]
    head = head_of("embd", exchange, worker)
    await reply_vectors(exchange, head, vectors, encoding, tokens, kind="embedding", field="embedding")


async def embed_v2(exchange: Exchange, worker: SimulatedWorker) -> None:
    """Cohere's shape, for texts, as float or base64."""
    fields = await exchange.fields()
    fields.require("model")
    model, texts = fields.text("model"), [str(text) for text in fields.items("texts")]
    kinds = fields.items("embedding_types") or ["float"]
    input_type = fields.text("input_type")
    fields.check()
    worker.check_model(model, pooling=True)
    if input_type is not None:
        message = f"Unsupported input_type '{input_type}'. This model does not define any input_type task instructions."
        raise ApiError(400, message)
    if not texts:
        raise ApiError(400, "You must pass at least one prompt")
    unknown = [kind for kind in kinds if kind not in ("float", "base64")]
    if unknown:
        raise ApiError(400, f"embedding_types {unknown} are not simulated; 'float' and 'base64' are")
    for text in texts:
        worker.check_length(len(tokenize(text)), pooling=True)
    tokens = await run_pooled(exchange, worker, texts)
    vectors = [embed(text, worker.options.embedding_dim) for text in texts]
    body = {
        "id": f"embd-{exchange.new_id()}",
        "embeddings": {
            kind: [Encoding(kind, "float32", "native").show(vector) for vector in vectors] for kind in kinds
        },
        "texts": texts,
        "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}},
        "response_type": "embeddings_by_type",
    }
    await exchange.reply_json(body)


ROUTES = (
    Route("POST", "/v1/embeddings", embeddings, tasks=("embed",)),
    Route("POST", "/v2/embed", embed_v2, tasks=("embed",)),
)
