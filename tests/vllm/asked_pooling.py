"""What `frontend.py` asks servers of pooling models; see asked.py."""

from itertools import product
from typing import Any

from asked import Asked, without

DTYPES = ("float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2")
ENDIANNESS = ("native", "big", "little")
TEXTS = ["my card was charged twice", "the weather is nice"]
# More tokens than the context of these models has; written out when it is sent.
LONG_POOLED = "<word x 900>"


def _embedding(name: str, /, **fields: Any) -> Asked:
    return Asked("embed", f"embeddings_{name}", "/v1/embeddings", without({"model": "minilm", "input": TEXTS} | fields))


def _pooling(name: str, /, **fields: Any) -> Asked:
    return Asked("embed", f"pooling_{name}", "/pooling", without({"model": "minilm", "input": TEXTS} | fields))


def _cohere(name: str, /, **fields: Any) -> Asked:
    return Asked("embed", f"cohere_{name}", "/v2/embed", without({"model": "minilm", "texts": TEXTS} | fields))


def _classify(name: str, /, path: str = "/classify", **fields: Any) -> Asked:
    return Asked("classify", f"{path[1:]}_{name}", path, without({"model": "cls", "input": TEXTS} | fields))


def _score(name: str, /, kind: str = "score", path: str = "/score", **fields: Any) -> Asked:
    model = {"score": "rank", "embed": "minilm"}[kind]
    return Asked(kind, f"score_{name}", path, {"model": model} | fields)


def _rerank(name: str, /, path: str = "/rerank", **fields: Any) -> Asked:
    body = {"model": "rank", "query": "what is http", "documents": ["a protocol", "a fruit"]} | fields
    return Asked("score", f"rerank_{name}", path, without(body))


# Every way to write numbers as bytes, on the two paths that offer the choice; the others ignore type or layout.
ENCODED = tuple(
    ask(f"{form}_{dtype}_{order}", encoding_format=form, embed_dtype=dtype, endianness=order)
    for ask in (_embedding, _pooling)
    for form, dtype, order in (
        *product(("bytes", "base64"), DTYPES, ENDIANNESS),
        *product(("float", "bytes_only"), ("float32", "bfloat16", "fp8_e4m3"), ("big",)),
    )
)

EMBEDDINGS = tuple(
    ask(name, **fields)
    for ask in (_embedding, _pooling)
    for name, fields in (
        ("text", {"input": "hi there"}),
        ("ids", {"input": [10, 11, 12]}),
        ("id_lists", {"input": [[10, 11], [12]]}),
        ("id_lists_bytes", {"input": [[10, 11], [12]], "encoding_format": "bytes"}),
        ("not_activated", {"use_activation": False}),
        ("activated", {"use_activation": True}),
        ("activation_type", {"use_activation": "perhaps"}),
        ("unknown_format", {"encoding_format": "hex"}),
        ("unknown_dtype", {"embed_dtype": "float64"}),
        ("unknown_endianness", {"endianness": "middle"}),
        ("unknown_all", {"encoding_format": "hex", "embed_dtype": "float64", "endianness": "middle"}),
        ("format_type", {"encoding_format": 5}),
        ("format_null", {"encoding_format": None}),
        ("dimensions", {"dimensions": 4}),
        ("dimensions_type", {"dimensions": "few"}),
        ("no_model", {"model": ...}),
        ("unknown_model", {"model": "nope"}),
        ("unknown_model_bytes", {"model": "nope", "encoding_format": "bytes"}),
        ("model_type", {"model": 5}),
        ("missing", {"input": ...}),
        ("null", {"input": None}),
        ("number", {"input": 5}),
        ("object", {"input": {"a": 1}}),
        ("mixed", {"input": ["a", 5]}),
        ("mixed_lists", {"input": [[1], "a"]}),
        ("empty", {"input": []}),
        ("empty_text", {"input": ""}),
        ("empty_texts", {"input": ["", ""]}),
        ("empty_id_list", {"input": [[]]}),
        ("fraction", {"input": [1.5]}),
        ("oov", {"input": [10, 999999999]}),
        ("negative_id", {"input": [-5]}),
        ("truncated", {"input": LONG_POOLED, "truncate_prompt_tokens": -1}),
        ("truncated_3", {"input": LONG_POOLED, "truncate_prompt_tokens": 3, "truncation_side": "left"}),
        ("truncated_over", {"truncate_prompt_tokens": 100000}),
        ("truncated_negative", {"truncate_prompt_tokens": -2}),
        ("truncated_type", {"truncate_prompt_tokens": "x"}),
        ("truncation_side", {"truncation_side": "top"}),
        ("normalize", {"normalize": True}),
        ("long", {"input": LONG_POOLED}),
        ("long_ids", {"input": "<ids x 300>"}),
    )
)

POOLING = (
    *(_pooling(f"task_{task}", task=task)
      for task in ("embed", "classify", "token_embed", "plugin", "score", "encode", "nonsense")),
    _pooling("task_both", task="embed&token_classify"),
    _pooling("task_type", task=5),
    _pooling("task_and_dimensions", task="classify", dimensions=4),
    _pooling("data", input=..., data={"a": 1}),
)  # fmt: skip

COHERE = (
    _cohere("plain"),
    _cohere("all_types", embedding_types=["float", "binary", "ubinary", "base64"]),
    _cohere("base64", embedding_types=["base64"]),
    _cohere("binary", embedding_types=["binary"]),
    _cohere("unknown_type", embedding_types=["int8"]),
    _cohere("no_types", embedding_types=[]),
    _cohere("missing", texts=...),
    _cohere("empty", texts=[]),
    _cohere("two", inputs=[{"content": [{"type": "text", "text": "a"}]}]),
    _cohere("type", texts="a"),
    _cohere("dimension", output_dimension=4),
    _cohere("long", texts=[LONG_POOLED]),
    _cohere("long_untruncated", texts=[LONG_POOLED], truncate="NONE"),
    _cohere("limited", texts=["a b c d e f g"], max_tokens=3),
    _cohere("over_limit", texts=["a b c d e f g"], max_tokens=3, truncate="NONE"),
    _cohere("truncate", truncate="MIDDLE"),
    _cohere("input_type", input_type="search_query"),
    _cohere("unknown_model", model="nope"),
    _cohere("no_model", model=...),
)

CLASSIFY = (
    _classify("ids", input=[10, 11]),
    _classify("id_lists", input=[[10, 11], [12]]),
    _classify("activated", use_activation=True),
    _classify("activation_type", use_activation="perhaps"),
    _classify("number", input=5),
    _classify("mixed", input=["a", 5]),
    _classify("oov", input=[999999999]),
    _classify("no_model", model=...),
    _classify("normalize", normalize=False),
    _classify("encoding_ignored", encoding_format="hex", dimensions="few"),
    _classify("bytes_ignored", encoding_format="bytes"),
    _classify("ids", path="/pooling", input=[10, 11]),
    _classify("not_activated", path="/pooling", use_activation=False),
    _classify("unknown_dtype", path="/pooling", embed_dtype="float64"),
    _classify("dimensions", path="/pooling", dimensions=2),
    *(_classify(f"bytes_{dtype}", path="/pooling", encoding_format="bytes", embed_dtype=dtype) for dtype in DTYPES),
    *(_classify(f"task_{task}", path="/pooling", task=task) for task in ("token_classify", "embed", "score", "plugin")),
)

SIDES = {"queries": "what is http", "documents": ["a protocol", "a fruit"]}
SCORES = (
    _score("queries_documents", **SIDES),
    _score("queries_items", queries="what is http", items=["a", "b"]),
    _score("data", data_1=["a", "b"], data_2=["c", "d"]),
    _score("texts", text_1="a", text_2="b"),
    _score("texts_v1", path="/v1/score", text_1=["a"], text_2=["b", "c"]),
    _score("not_activated", text_1="a", text_2="b", use_activation=False),
    _score("lengths", text_1=["a", "b"], text_2=["c"]),
    _score("no_first", text_1=[], text_2=["c"]),
    _score("no_second", text_1="a", text_2=[]),
    _score("type", text_1=5, text_2="b"),
    _score("object", text_1="a", text_2={"content": [{"type": "text", "text": "b"}]}),
    _score("missing", text_2="a"),
    _score("mixed_names", text_1="a", documents="b"),
    _score("unknown_model", model="nope", text_1="a", text_2="b"),
    _score("long", text_1="a", text_2=LONG_POOLED),
    _score("truncated", text_1="a", text_2=LONG_POOLED, truncate_prompt_tokens=20),
    _score("per_document", text_1="a", text_2=LONG_POOLED, max_tokens_per_doc=10, max_tokens_per_query=10),
    _score("per_document_over", text_1="a", text_2="b", max_tokens_per_doc=100000),
    _score("queries_documents", kind="embed", **SIDES),
    _score("pairs", kind="embed", path="/v1/score", data_1=["a", "b"], data_2=["c", "d"]),
    _score("no_second", kind="embed", text_1="a", text_2=[]),
    _score("long", kind="embed", text_1="a", text_2=LONG_POOLED),
    _rerank("plain"),
    _rerank("one_document", documents="a protocol"),
    _rerank("top_1", path="/v2/rerank", top_n=1),
    _rerank("top_over", path="/v1/rerank", top_n=99),
    _rerank("top_0", top_n=0),
    _rerank("top_negative", top_n=-1),
    _rerank("top_type", top_n="few"),
    _rerank("not_activated", use_activation=False),
    _rerank("missing", query=..., documents=...),
    _rerank("query_list", query=["a", "b"]),
    _rerank("documents_type", documents=5),
    _rerank("object", documents=[{"text": "a"}]),
    _rerank("content_object", documents=[{"content": [{"type": "text", "text": "b"}]}]),
    _rerank("empty", path="/v1/rerank", documents=[]),
    _rerank("unknown_model", path="/v2/rerank", model="nope"),
    _rerank("no_model", model=...),
    _rerank("long", documents=[LONG_POOLED]),
    Asked("score", "classify_ids", "/classify", {"model": "rank", "input": [10, 11]}),
    Asked("score", "pooling_not_activated", "/pooling", {"model": "rank", "input": "x", "use_activation": False}),
)

POOLED = (*ENCODED, *EMBEDDINGS, *POOLING, *COHERE, *CLASSIFY, *SCORES)
