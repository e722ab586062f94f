"""`warmset up` as a newcomer has it: one command, the SDK, and nothing left behind."""

import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator

import openai
import pytest
from openai import OpenAI

from tests.e2e.conftest import Gateway, await_end
from tests.patience import PATIENCE_S, until

HELLO = [{"role": "user", "content": "Say hello"}]


@pytest.fixture(scope="module")
def up() -> Iterator[Gateway]:
    gateway = Gateway("up", "--speed", "20", "--expose-routing-headers")
    try:
        gateway.listening()
        gateway.wait_for("Ctrl-C stops everything")
        yield gateway
    finally:
        gateway.end()


@pytest.fixture
def client(up: Gateway) -> Iterator[OpenAI]:
    with OpenAI(base_url=up.data + "/v1", api_key="unused", max_retries=0) as made:
        yield made


def test_says_where_everything_is_and_the_example_works(up: Gateway) -> None:
    words = "".join(up.out)
    for address in (up.data, up.admin, up.metrics):
        assert address in words
    example = words[words.index("  curl") : words.index("Ctrl-C")].replace("\\\n", " ")
    answer = subprocess.run(shlex.split(example), capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    assert '"object":"chat.completion"' in answer


def test_models(client: OpenAI) -> None:
    assert sorted(model.id for model in client.models.list()) == ["sim-chat", "sim-embed"]
    assert client.models.retrieve("sim-chat").id == "sim-chat"


def test_chat(client: OpenAI) -> None:
    answer = client.chat.completions.with_raw_response.create(model="sim-chat", messages=HELLO, max_tokens=7)
    assert answer.headers["x-warmset-policy"] == "power_of_two"
    assert answer.headers["x-warmset-simulated"] == "true"
    parsed = answer.parse()
    assert parsed.choices[0].finish_reason == "length"
    assert parsed.usage is not None
    assert parsed.usage.completion_tokens == 7


def test_chat_stream(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="sim-chat", messages=HELLO, max_tokens=7, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 7


def test_completions_and_responses(client: OpenAI) -> None:
    assert client.completions.create(model="sim-chat", prompt="once", max_tokens=3).choices[0].text
    assert client.responses.create(model="sim-chat", input="once", max_output_tokens=3).output_text
    kinds = [
        event.type
        for event in client.responses.create(model="sim-chat", input="once", max_output_tokens=3, stream=True)
    ]
    assert kinds[0] == "response.created"
    assert kinds[-1] in ("response.completed", "response.incomplete")


def test_embeddings_are_the_same_in_both_encodings(client: OpenAI) -> None:
    texts = ["my card was charged twice", "the weather is nice"]
    packed = client.embeddings.create(model="sim-embed", input=texts)
    plain = client.embeddings.create(model="sim-embed", input=texts, encoding_format="float")
    assert [item.embedding for item in packed.data] == [item.embedding for item in plain.data]


def test_errors_are_those_of_the_sdk(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="nobody", messages=HELLO)
    assert missing.value.code == "model_not_found"
    assert missing.value.request_id
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="sim-chat", messages=HELLO, temperature=-1)
    with pytest.raises((openai.NotFoundError, openai.BadRequestError)):
        client.embeddings.create(model="sim-chat", input="x")


def test_a_prompt_is_never_logged(up: Gateway, client: OpenAI) -> None:
    secret = "a sentence that must stay between client and worker"
    client.chat.completions.create(
        model="sim-chat",
        messages=[{"role": "user", "content": secret}],
        max_tokens=2,
        extra_headers={"x-request-id": "r-1"},
    )
    line = up.wait_for(r'\{.*"request_id": ?"r-1".*\}').group()
    assert '"path":"/v1/chat/completions"' in line.replace(" ", "")
    assert secret not in up.output


def test_metrics_count_what_happened(up: Gateway, client: OpenAI) -> None:
    client.chat.completions.create(model="sim-chat", messages=HELLO, max_tokens=2)
    for name in (
        'warmset_requests_total{endpoint="/v1/chat/completions",model="sim-chat",status="200"}',
        'warmset_router_tokens_total{kind="completion",model="sim-chat"}',
        'warmset_router_ttft_seconds_count{model="sim-chat"}',
        'warmset_router_decisions_total{policy="power_of_two"',
        "warmset_store_up 1.0",
    ):
        until(lambda name=name: name in up.exposition())  # type: ignore[misc]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_signal_leaves_a_process_behind(gateway: Callable[..., Gateway], number: signal.Signals) -> None:
    up = gateway("up", "--speed", "20", "--workers", "1")
    up.wait_for("Ctrl-C stops everything")
    tree = up.tree()
    assert len(tree) >= 4, "the gateway, its store, a chat and an embedding worker"
    up.process.send_signal(number)
    status = up.wait()
    assert status == (-number if number is signal.SIGKILL else 0)
    await_end(tree)


def test_a_stream_ends_before_the_gateway_does_and_a_second_signal_does_not_wait(
    gateway: Callable[..., Gateway],
) -> None:
    # Half a second, and more than an hour.
    for speed, tokens, ends in (("2", 100, True), ("0.1", 100_000, False)):
        up = gateway("up", "--workers", "1", "--speed", speed)
        up.wait_for("Ctrl-C stops everything")
        with OpenAI(base_url=up.data + "/v1", api_key="unused", max_retries=0) as client:
            stream = client.chat.completions.create(model="sim-chat", messages=HELLO, max_tokens=tokens, stream=True)
            next(iter(stream))
            up.process.send_signal(signal.SIGTERM)
            if ends:
                assert len(list(stream)) >= 99
            else:
                up.wait_for('"event": ?"shutting down"')  # two signals at once would be one to the kernel
                next(iter(stream))
                assert up.process.poll() is None
                up.process.send_signal(signal.SIGTERM)
                with pytest.raises(openai.APIError) as caught:
                    list(stream)
                assert caught.value.code == "shutting_down"
            assert up.wait() == 0
