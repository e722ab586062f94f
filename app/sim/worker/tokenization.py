"""POST /tokenize and /detokenize, on workers of every task."""

from app.sim.worker.chat import messages_of
from app.sim.worker.http import Exchange, Route
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.tokens import conversation, from_ids, text_of, token_ids, tokenize


async def tokenize_text(exchange: Exchange, worker: SimulatedWorker) -> None:
    """Token ids of a prompt, or of messages as the chat endpoint would render them."""
    fields = await exchange.fields()
    if "messages" not in fields.body:
        fields.require("prompt")
    model, prompt, with_strings = fields.text("model"), fields.text("prompt"), fields.flag("return_token_strs")
    fields.check()
    worker.check_model(model)
    tokens = tokenize(prompt) if prompt is not None else conversation(messages_of(fields, worker))
    await exchange.reply_json(
        {
            "count": len(tokens),
            "max_model_len": worker.settings.model_len,
            "tokens": token_ids(tokens),
            "token_strs": [piece.decode("utf-8", "replace") for piece in tokens] if with_strings else None,
        }
    )


async def detokenize(exchange: Exchange, worker: SimulatedWorker) -> None:
    fields = await exchange.fields()
    fields.require("tokens")
    model, tokens = fields.text("model"), fields.items("tokens")
    fields.check()
    worker.check_model(model)
    await exchange.reply_json({"prompt": text_of(from_ids(tokens))})


ROUTES = (Route("POST", "/tokenize", tokenize_text), Route("POST", "/detokenize", detokenize))
