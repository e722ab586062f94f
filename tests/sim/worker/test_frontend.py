"""What vLLM 0.32.0's own HTTP side answers, the simulated worker answers too: requests that no capture holds.

The records are in tests/sim/data/vllm/frontend, made by tests/vllm/frontend.py; see the README there.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.worker.shapes import RECORDED, differences, load, send

# A kind of recorded server, and the worker that stands for it.
WORKERS = {"generate": "generate", "embed": "embed-narrow", "classify": "classify", "score": "score"}
EXCHANGES = [(kind, exchange) for kind in WORKERS for exchange in load(RECORDED, kind)]

# Refusals whose text is another, and why.
_FORMS = "vLLM tells five forms of the request apart, and complains about each; here are two"
_ITS_OWN = "the text holds a number or a name that is a model's own"
WORDED_FREELY = {
    "embed-front_list_embeddings": _FORMS,
    "embed-embeddings_activation_type": _FORMS,
    "embed-embeddings_unknown_format": _FORMS,
    "embed-embeddings_unknown_dtype": _FORMS,
    "embed-embeddings_unknown_endianness": _FORMS,
    "embed-embeddings_unknown_all": _FORMS,
    "embed-embeddings_format_type": _FORMS,
    "embed-embeddings_format_null": _FORMS,
    "embed-embeddings_dimensions_type": _FORMS,
    "embed-embeddings_model_type": _FORMS,
    "embed-embeddings_missing": _FORMS,
    "embed-embeddings_null": _FORMS,
    "embed-embeddings_number": _FORMS,
    "embed-embeddings_object": _FORMS,
    "embed-embeddings_mixed": _FORMS,
    "embed-embeddings_mixed_lists": _FORMS,
    "embed-embeddings_fraction": _FORMS,
    "embed-embeddings_truncated_negative": _FORMS,
    "embed-embeddings_truncated_type": _FORMS,
    "embed-embeddings_truncation_side": _FORMS,
    "embed-cohere_over_limit": _ITS_OWN,
    "generate-completions_logprob_token_ids_oov": _ITS_OWN,
    "generate-generative_scoring_label_oov": _ITS_OWN,
    "score-score_object": _ITS_OWN,
    "score-rerank_content_object": _ITS_OWN,
}
DIFFERENT = {"generate-chat_messages_type_stream": "vLLM's answer tells of a fault of its own"}


@pytest.mark.parametrize(
    ("kind", "exchange"), EXCHANGES, ids=[f"{kind}-{exchange['name']}" for kind, exchange in EXCHANGES]
)
def test_answers_as_vllm_does(kind: str, exchange: dict[str, Any], worker_of: Callable[[str], Any]) -> None:
    name = f"{kind}-{exchange['name']}"
    answer = send(worker_of(WORKERS[kind]).url, exchange)
    if name in DIFFERENT or name in WORDED_FREELY:
        assert differences(exchange, answer), "it is the same: take it out of the table"
    if name not in DIFFERENT:
        assert not differences(exchange, answer, worded=name not in WORDED_FREELY)


def test_the_tables_name_records_only() -> None:
    names = {f"{kind}-{exchange['name']}" for kind, exchange in EXCHANGES}
    assert names >= set(DIFFERENT) | set(WORDED_FREELY)
    assert len(names) == len(EXCHANGES)
