"""POST /tokenize and /detokenize, on workers of every task."""

from typing import NamedTuple

from app.sim.worker.fields import Fields, choose
from app.sim.worker.http import Exchange, Route
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.tokens import conversation, from_ids, text_of, token_ids, tokenize
from app.sim.worker.turns import turns_of


class TokenizeRequest(NamedTuple):
    model: str | None
    prompt: str | None
    messages: list[object]
    tools: object
    with_strings: bool


async def tokenize_text(exchange: Exchange, worker: SimulatedWorker) -> None:
    """Token ids of a prompt, or of messages as the chat endpoint would render them."""
    request = choose(await exchange.json(), (_of_prompt, _of_messages))
    worker.check_model(request.model)
    if request.prompt is not None:
        tokens = tokenize(request.prompt)
    else:
        tokens = conversation(turns_of(request.messages, worker, request.tools))
    await exchange.reply_json(
        {
            "count": len(tokens),
            "max_model_len": worker.settings.model_len,
            "tokens": token_ids(tokens),
            "token_strs": [piece.decode("utf-8", "replace") for piece in tokens] if request.with_strings else None,
        }
    )


def _of_prompt(fields: Fields) -> TokenizeRequest:
    model = fields.text("model")
    prompt = fields.get("prompt")
    if fields.require("prompt") and not isinstance(prompt, str):
        fields.complain_type("string", "string", "prompt", prompt)
    return TokenizeRequest(model, prompt, [], None, fields.flag("return_token_strs"))


def _of_messages(fields: Fields) -> TokenizeRequest:
    model = fields.text("model")
    messages = fields.items("messages") if fields.require("messages") else []
    return TokenizeRequest(model, None, messages, fields.get("tools"), fields.flag("return_token_strs"))


async def detokenize(exchange: Exchange, worker: SimulatedWorker) -> None:
    fields = await exchange.fields()
    fields.require("tokens")
    model, tokens = fields.text("model"), fields.integers("tokens", least=0)
    fields.check()
    worker.check_model(model)
    await exchange.reply_json({"prompt": text_of(from_ids(tokens))})


ROUTES = (Route("POST", "/tokenize", tokenize_text), Route("POST", "/detokenize", detokenize))
