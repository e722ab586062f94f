"""Records what vLLM's own HTTP side answers. Run by the engine's own Python: frontend.py MODELS EMBEDDER OUTPUT_FOLDER

Everything is vLLM's but one thing: where its engine core would run in processes of its own, a stub hands out fixed
tokens and vectors. So a record takes a minute and no model runs; validation, rendering, detokenizing, the shapes of
answers, streams, encodings and errors are those of the release. tests/sim/data/vllm keeps the answers to asked.py
and asked_pooling.py.
"""

import asyncio
import base64
import json
import os
import re
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

os.environ |= {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}

import httpx
import numpy
import torch
import uvicorn
from asked import GENERATING
from asked_pooling import POOLED
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core_client import EngineCoreClient
from vllm.v1.executor import Executor
from vllm.v1.metrics.stats import PrefillStats
from vllm.v1.outputs import LogprobsLists

BLOCK = 32
# The stub says these tokens, one after the other, with a pause in which the HTTP side sends each.
FIRST_TOKEN = 300
MOST_TOKENS = 12
PAUSE_S = 0.03
# Of an embedding. Narrow, so that the records stay small; nothing above the engine core looks at it.
WIDTH = 8

COMMON = ("--dtype", "float32", "--enforce-eager", "--gpu-memory-utilization", "0.1")
CHAT = ("--max-model-len", "2048", "--block-size", str(BLOCK), "--enable-prompt-tokens-details")


class StubCore:
    """Stands for the client of the engine core: takes requests, and gives outputs that depend on them alone."""

    engine_ranks_managed = (0,)
    resources = SimpleNamespace(engine_dead=False)

    def __init__(self, tasks: tuple[str, ...], width: int) -> None:
        self._tasks = tasks
        self._width = width
        self._outputs: asyncio.Queue[EngineCoreOutputs] = asyncio.Queue()
        self._speaking: set[asyncio.Task[None]] = set()

    async def get_supported_tasks_async(self) -> list[str]:
        return list(self._tasks)

    def get_kv_event_sources(self) -> dict[int, object]:
        return {}

    async def get_output_async(self) -> EngineCoreOutputs:
        return await self._outputs.get()

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        pass

    def shutdown(self, timeout: float | None = None) -> None:
        pass

    async def add_request_async(self, request) -> None:
        work = self._pool if request.pooling_params is not None else self._speak
        task = asyncio.create_task(work(request))
        self._speaking.add(task)
        task.add_done_callback(self._speaking.discard)

    async def _pool(self, request) -> None:
        total = sum(request.prompt_token_ids)
        values = torch.tensor([(total * (place + 3) % 97 - 48) / 64 for place in range(self._width)])
        if self._width == WIDTH and request.pooling_params.use_activation is not False:
            values = torch.nn.functional.normalize(values, dim=-1)
        self._give(request, [], FinishReason.STOP, pooling_output=values, prefill_stats=_prefilled(request))

    async def _speak(self, request) -> None:
        params = request.sampling_params
        count = min(params.max_tokens, MOST_TOKENS)
        reason = FinishReason.LENGTH if count == params.max_tokens else FinishReason.STOP
        for step in range(count):
            await asyncio.sleep(PAUSE_S)
            token = FIRST_TOKEN + step
            ended = reason if step == count - 1 else None
            stats = None if step else _prefilled(request)
            self._give(request, [token], ended, new_logprobs=_logprobs(params, token), prefill_stats=stats)

    def _give(self, request, tokens: list[int], ended: FinishReason | None, **more) -> None:
        output = EngineCoreOutput(request.request_id, tokens, finish_reason=ended, **more)
        self._outputs.put_nowait(EngineCoreOutputs(outputs=[output]))


def _prefilled(request) -> PrefillStats:
    stats = PrefillStats()
    tokens = len(request.prompt_token_ids)
    stats.set(tokens, 0, 0)
    stats.finalize(tokens // BLOCK * BLOCK)
    return stats


def _logprobs(params, token: int) -> LogprobsLists | None:
    """As the sampler gives them: the sampled token, then those asked for by id, or the likeliest (it is the first)."""
    others = params.logprob_token_ids
    if params.logprobs is None and not others:
        return None
    if others is None:
        others = [token, *(token - 100 - rank for rank in range(params.logprobs))][: params.logprobs]
    ids = [token, *others]
    values = [-1.0 - 0.5 * place for place in range(len(ids))]
    return LogprobsLists(numpy.array([ids]), numpy.array([values], dtype=numpy.float32), numpy.array([1]))


async def record(kind: str, model: Path, tasks: tuple[str, ...], width: int, *options: str) -> tuple[dict, list]:
    """The routes of a server of this kind, and what it answers to each request of the table."""
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(["--model", str(model), *COMMON, *options])
    config = AsyncEngineArgs.from_cli_args(args).create_engine_config()
    EngineCoreClient.make_async_mp_client = staticmethod(lambda **_: StubCore(tasks, width))
    engine = AsyncLLM(config, Executor.get_class(config), log_stats=False)
    app = build_app(args, tasks, config.model_config)
    await init_app_state(engine, app.state, args, await engine.get_supported_tasks())
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", http="httptools"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        records = [await ask(client, asked) for asked in (*GENERATING, *POOLED) if asked.kind == kind]
    server.should_exit = True
    await serving
    routes: dict[str, list[str]] = {}
    for route in app.routes:
        for method in getattr(route, "methods", None) or ():
            routes.setdefault(route.path, []).append(method)
    return {path: sorted(methods) for path, methods in routes.items()}, records


async def ask(client: httpx.AsyncClient, asked) -> dict:
    """One exchange, as tests/sim/data/vllm/README.md describes it."""
    headers = dict(asked.headers)
    if asked.content_type:
        headers["content-type"] = asked.content_type
    body = asked.body
    if body is not None:
        body = body.decode() if isinstance(body, bytes) else json.dumps(body, separators=(",", ":"))
    content = None if body is None else filled(body)
    answer = await client.request(asked.method, asked.path, headers=headers, content=content)
    exchange = {"name": asked.name, "method": asked.method, "path": asked.path, "headers": headers, "body": body}
    exchange |= {
        "status": answer.status_code,
        "answer_headers": [[name.decode().lower(), value.decode()] for name, value in answer.headers.raw],
    }
    if answer.headers.get("content-type") == "application/octet-stream":
        return exchange | {"base64": base64.b64encode(answer.content).decode()}
    return exchange | {"text": answer.content.decode()}


def filled(body: str) -> str:
    """With what stands for something long: `<word x 900>`, `"<ids x 300>"`."""
    body = re.sub(r"<word x (\d+)>", lambda found: "word " * int(found[1]), body)
    return re.sub(r'"<ids x (\d+)>"', lambda found: json.dumps([10] * int(found[1])), body)


def main(models: Path, embedder: Path, output: Path) -> None:
    kinds = {
        "generate": (models / "chat", ("generate",), 0, "--served-model-name", "tiny", *CHAT),
        "embed": (embedder, ("token_embed", "embed"), WIDTH, "--served-model-name", "minilm"),
        "classify": (models / "classifier", ("token_classify", "classify"), 3, "--served-model-name", "cls"),
        "score": (models / "reranker", ("token_classify", "classify"), 1, "--served-model-name", "rank"),
    }
    routes = {}
    for kind, settings in kinds.items():
        routes[kind], records = asyncio.run(record(kind, *settings))
        lines = (json.dumps(exchange, ensure_ascii=False, separators=(",", ":")) for exchange in records)
        (output / f"{kind}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (output / "routes.json").write_text(json.dumps(routes, indent=1) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
    os._exit(0)  # vLLM's threads would wait for the engine that never was
