"""Faults that users of other LLM gateways reported, and what keeps them out of this one: the index.

Each entry is one kind of fault in streaming and HTTP, in bodies and endpoints, or in security: where it was reported
first or best, what was seen there, and the tests of ours that would fail if it were here. A fault that cannot be here
says why, and names a test that fails on the day on which that is no longer so. The numbers are names; they have gaps.

To add one, write the test, then the entry. `test_known_faults.py` checks that every test exists and runs by default.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Covered:
    """tests: `path::function` or `path::Class::function`. apart_from: what of the remedy is not there, and why."""

    tests: tuple[str, ...]
    apart_from: str = ""


@dataclass(frozen=True, slots=True)
class NotOurs:
    """reason: why it cannot happen here. tests: those that fail when the reason is no longer true."""

    reason: str
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownFault:
    """reported_at: an issue of another project, or the number of an advisory."""

    id: str
    reported_at: str
    symptom: str
    answer: Covered | NotOurs


def covered_by(*tests: str, apart_from: str = "") -> Covered:
    return Covered(tests, apart_from)


STREAMS_AND_HTTP = (
    KnownFault(
        "F36",
        "encode/httpcore#1093",
        "Each request that is cancelled costs the pool a place for ever, until all requests wait in vain.",
        covered_by(
            "tests/api/test_crowds.py::test_clients_that_leave_at_random_leave_nothing_behind",
            "tests/api/test_cancellation.py::test_cancelled_anywhere",
            "tests/upstream/test_client.py::test_cancelling_closes_the_connection",
            apart_from="There is no watchdog: the pool has no limit that a lost place could use up.",
        ),
    ),
    KnownFault(
        "F37",
        "vllm-project/production-stack#767",
        "A limit of 100 connections that nobody chose makes the 101st stream wait for the end of another.",
        covered_by("tests/api/test_crowds.py::test_a_hundred_and_fifty_streams_run_at_once"),
    ),
    KnownFault(
        "F38",
        "vllm-project/production-stack#952",
        "The answer is closed before its stream is read, and the client gets a head without a body.",
        covered_by(
            "tests/api/test_proxy.py::test_a_stream_passes_as_it_came",
            "tests/e2e/test_up.py::test_chat_stream",
        ),
    ),
    KnownFault(
        "F40",
        "mozilla-ai/any-llm#847",
        "A worker dies within a stream, and the client sees silence, a made-up [DONE], or an error glued to half an "
        "event.",
        covered_by(
            "tests/api/test_proxy.py::test_a_broken_chat_stream_ends_with_one_error_event",
            "tests/api/test_proxy.py::test_a_broken_responses_stream_fails_in_its_own_words",
            "tests/api/test_proxy.py::test_a_broken_messages_stream_fails_in_anthropics_words",
            "tests/api/test_proxy.py::test_a_broken_json_answer_breaks_the_connection",
            "tests/api/test_verbatim.py::test_a_broken_stream_of_no_json_ends_with_an_event_all_the_same",
            "tests/faults/test_stream_cuts.py::test_any_stream_in_any_pieces_cut_anywhere",
        ),
    ),
    KnownFault(
        "F41",
        "EricLBuehler/mistral.rs#1874",
        "An error event is sent, and then the stream stays open.",
        covered_by(
            "tests/api/test_sent_once.py::test_a_stream_that_its_worker_leaves_open_after_an_error_ends",
            "tests/api/test_proxy.py::test_a_broken_chat_stream_ends_with_one_error_event",
        ),
    ),
    KnownFault(
        "F43",
        "pleaseai/shunt#126",
        "A request that a worker took is sent again after a time-out, and its work is done two or twelve times.",
        covered_by(
            "tests/api/test_sent_once.py::test_a_worker_that_takes_a_request_and_stalls_is_the_only_one_asked",
            "tests/api/test_sent_once.py::test_what_a_worker_answers_is_not_asked_of_another",
            "tests/api/test_proxy.py::test_a_worker_that_closes_without_an_answer_is_502_and_asked_once",
            "tests/upstream/test_client.py::test_a_reused_connection_that_breaks_inside_the_head_is_not_retried",
        ),
    ),
    KnownFault(
        "F44",
        "BerriAI/litellm#25624",
        "A compressed answer is unpacked but keeps the length and encoding it had, or has two framings at once.",
        covered_by(
            "tests/api/test_verbatim.py::test_compressed_json_keeps_its_bytes_its_length_and_its_encoding",
            "tests/upstream/test_client.py::test_a_head_with_two_meanings_is_no_answer",
            "tests/upstream/test_client.py::test_the_request_on_the_wire",
        ),
    ),
    KnownFault(
        "F45",
        "envoyproxy/ai-gateway#1927",
        "A compressed stream is unpacked piece by piece, each anew, and nothing of it reaches the client.",
        covered_by(
            "tests/api/test_verbatim.py::test_a_compressed_stream_passes_event_by_event",
            "tests/api/test_proxy.py::test_what_a_worker_compressed_all_the_same_passes_as_it_came",
        ),
    ),
    KnownFault(
        "F46",
        "vllm-project/router#190",
        "Host, length and the headers of one connection are copied to the next one.",
        covered_by(
            "tests/api/test_trust.py::test_no_header_of_one_connection_passes_and_none_of_ours_is_taken_away",
            "tests/api/test_proxy.py::test_what_reaches_the_worker_of_the_clients_headers",
            "tests/upstream/test_client.py::test_hop_by_hop_headers_stay_between_worker_and_gateway",
        ),
    ),
    KnownFault(
        "F47",
        "encode/uvicorn#824",
        "The server lets an idle connection go just when the client uses it, and the request is lost.",
        covered_by(
            "tests/upstream/test_patience.py::test_a_worker_that_lets_go_as_it_is_asked_costs_nobody_a_request",
            "tests/upstream/test_patience.py::test_idle_connections_are_let_go_by_who_would_use_them_next",
            "tests/upstream/test_client.py::test_a_stale_connection_costs_one_retry_and_nothing_else",
            "tests/upstream/test_client.py::test_idle_connections_are_closed_and_their_origin_forgotten",
        ),
    ),
    KnownFault(
        "F48",
        "encode/uvicorn#88",
        "Expect: 100-continue is passed on, or the 100 is taken for the answer.",
        covered_by(
            "tests/api/test_edge.py::test_expect_is_answered_here",
            "tests/api/test_pipeline.py::test_expect_is_not_answered_with_100_when_the_request_is_refused",
            "tests/api/test_pipeline.py::test_expect_does_not_reach_the_worker",
            "tests/upstream/test_client.py::test_interim_answers_and_trailers_are_not_part_of_the_answer",
        ),
    ),
    KnownFault(
        "F49",
        "sgl-project/sglang#38735",
        "The largest body is too small for pictures, or is asked of Content-Length alone, which chunks do not have.",
        covered_by(
            "tests/api/test_verbatim.py::test_a_picture_of_megabytes_passes_by_default",
            "tests/api/test_refusals.py::test_a_body_is_counted_while_it_is_read",
            "tests/api/test_pipeline.py::test_a_client_that_is_refused_while_it_sends_can_read_why",
            "tests/api/test_proxy.py::test_bodies_together_are_bounded_until_their_workers_answer",
        ),
    ),
    KnownFault(
        "F50",
        "encode/starlette#1018",
        "For a client that reads slowly the whole answer is kept in memory.",
        covered_by(
            "tests/api/test_proxy.py::test_a_slow_client_holds_bounded_memory",
            "tests/api/test_proxy.py::test_a_client_that_reads_nothing_is_cut_and_a_slow_one_is_not",
            "tests/upstream/test_client.py::test_a_slow_reader_holds_the_worker_back",
        ),
    ),
    KnownFault(
        "F51",
        "hermes#58471",
        "A line of a stream that never ends makes the buffer of its reader grow with it.",
        covered_by(
            "tests/api/test_relay.py::test_a_line_without_an_end_costs_no_more_than_is_held_of_any",
            "tests/api/test_proxy.py::test_what_has_no_end_of_an_event_is_not_held_for_ever",
        ),
    ),
    KnownFault(
        "F52",
        "openai/openai-python#2722",
        "Comments of a stream come out as data, ids are lost, or a ping of the gateway's own is read as an event.",
        covered_by(
            "tests/api/test_verbatim.py::test_a_stream_keeps_its_bytes",
            "tests/api/test_proxy.py::test_a_comment_alone_passes_at_once",
            "tests/api/test_keepalive.py::test_why_a_comment_of_ours_has_no_blank_line",
        ),
    ),
    KnownFault(
        "F53",
        "vllm-project/aibrix#1810",
        "One idle limit for everything ends models that think for minutes, and SDKs send the same again.",
        covered_by(
            "tests/upstream/test_patience.py::test_a_worker_may_think_for_ten_minutes_by_default",
            "tests/upstream/test_patience.py::test_each_limit_is_a_limit_of_its_own",
            "tests/api/test_sent_once.py::test_a_worker_that_takes_a_request_and_stalls_is_the_only_one_asked",
            "tests/api/test_keepalive.py::test_a_worker_that_sends_its_head_at_once_and_thinks_then",
        ),
    ),
    KnownFault(
        "F54",
        "maximhq/bifrost#1613",
        "A connection whose answer was read in half is used again, and the rest is taken for the next answer.",
        covered_by(
            "tests/upstream/test_client.py::test_closing_an_unfinished_answer_closes_the_connection",
            "tests/upstream/test_client.py::test_bytes_that_nobody_asked_for_poison_the_connection",
            "tests/upstream/test_client.py::test_what_may_have_more_bytes_behind_it_is_not_used_again",
            "tests/upstream/test_client.py::test_who_is_cancelled_too_late_does_not_close_the_connection_of_the_next",
        ),
    ),
    KnownFault(
        "F55",
        "encode/httpcore#1054",
        "One GOAWAY, or one bad stream, of an HTTP/2 connection ends all requests that share it.",
        Covered(("tests/api/test_verbatim.py::test_http_2_is_not_spoken_and_breaks_nothing_else",)),
    ),
    KnownFault(
        "F56",
        "encode/starlette#1438",
        "Middleware of Starlette's own kind holds streams back and hides that a client has left.",
        covered_by(
            "tests/architecture/test_source.py::test_middleware_is_pure_asgi",
            "tests/api/test_proxy.py::test_a_client_that_leaves_frees_the_worker",
        ),
    ),
)

BODIES_AND_ENDPOINTS = (
    KnownFault(
        "F59",
        "ggml-org/llama.cpp#27434",
        "A body nested thousands of levels deep ends in a 500, or ends the process.",
        covered_by(
            "tests/api/test_verbatim.py::test_a_depth_bomb_is_refused_and_what_is_merely_deep_is_not",
            "tests/api/test_body.py::test_what_parsers_read_differently_or_not_at_all",
            apart_from="The cap is the parser's own of 200 levels; what workers read with takes about a thousand.",
        ),
    ),
    KnownFault(
        "F60",
        "Aider-AI/aider#3693",
        "Half a surrogate pair in a prompt is a 500, or a stream of 200 with a Python error in it.",
        covered_by(
            "tests/api/test_verbatim.py::test_half_a_character_reaches_no_worker",
            "tests/api/test_body.py::test_what_parsers_read_differently_or_not_at_all",
        ),
    ),
    KnownFault(
        "F61",
        "vllm-project/vllm#19661",
        "A NaN of the model makes an answer a 500 or no JSON, and the gateway fails on it or gives the worker up.",
        covered_by("tests/api/test_verbatim.py::test_an_answer_that_is_no_json_is_the_clients_to_read"),
    ),
    KnownFault(
        "F62",
        "vllm-project/vllm#6174",
        "OpenAI's SDK asks for vectors in base64 by itself; a proxy that drops or decodes this gives other vectors.",
        covered_by(
            "tests/api/test_verbatim.py::test_an_sdks_own_encoding_of_vectors_is_not_touched",
            "tests/e2e/test_up.py::test_embeddings_are_the_same_in_both_encodings",
            "tests/vllm/test_openai_sdk.py::test_embeddings",
        ),
    ),
    KnownFault(
        "F63",
        "vllm-project/vllm#30249",
        "Vectors as bytes are read as text, or their header of hundreds of kilobytes is beyond the client's limit.",
        covered_by(
            "tests/api/test_verbatim.py::test_binary_vectors_keep_every_octet_and_their_long_header",
            "tests/api/test_verbatim.py::test_a_head_beyond_what_is_read_is_told_as_such",
            "tests/api/test_proxy.py::test_headers_of_a_megabyte_pass",
            "tests/api/test_fan_out.py::test_an_operator_may_have_it_refused_with_advice",
            "tests/vllm/test_bytes.py::test_answer_is_the_workers",
        ),
    ),
    KnownFault(
        "F64",
        "envoyproxy/ai-gateway#1404",
        "Prompts as token ids, and batches of them, are refused.",
        covered_by(
            "tests/api/test_verbatim.py::test_tokens_and_batches_pass",
            apart_from="No prefix key is made of token ids, since none is made of any prompt yet.",
        ),
    ),
    KnownFault(
        "F65",
        "BerriAI/litellm#3276",
        "Of several choices only the first is kept, or the last chunk, which has usage and no choice, is an error.",
        covered_by(
            "tests/api/test_verbatim.py::test_a_stream_keeps_its_bytes",
            "tests/api/test_verbatim.py::test_what_an_sdk_reads_of_two_choices_and_their_usage",
            "tests/api/test_proxy.py::test_usage_is_read_as_it_goes_by",
        ),
    ),
    KnownFault(
        "F66",
        "vllm-project/vllm#37795",
        "Chunks with tool calls or log probabilities do not arrive.",
        covered_by(
            "tests/api/test_verbatim.py::test_a_stream_keeps_its_bytes",
            "tests/vllm/test_openai_sdk.py::test_tool_call",
        ),
    ),
    KnownFault(
        "F67",
        "ggml-org/llama.cpp#22215",
        "A form with a file hangs, has a wrong length, loses its key, or is a 500 when its boundary is wrong.",
        covered_by(
            "tests/api/test_uploads.py::test_a_form_arrives_as_it_was_sent",
            "tests/api/test_uploads.py::test_what_no_worker_can_be_asked",
            "tests/api/test_forms.py::test_what_can_be_read_in_two_ways_is_refused",
        ),
    ),
    KnownFault(
        "F68",
        "gpustack/gpustack#4932",
        "Paths for scores, ranks, classes and pooling are missing, or lead nowhere.",
        covered_by(
            "tests/api/test_verbatim.py::test_every_path_reaches_the_worker_as_it_is",
            "tests/vllm/test_bytes.py::test_every_served_path_is_compared",
        ),
    ),
    KnownFault(
        "F69",
        "vllm-project/production-stack#472",
        "The client's request id is replaced, a made one is not passed on, or one of a megabyte is in each event.",
        covered_by(
            "tests/api/test_trust.py::test_one_id_from_client_to_worker_to_log",
            "tests/api/test_trust.py::test_an_id_that_would_break_a_head_or_a_log_is_refused",
            "tests/api/test_trust.py::test_no_header_of_one_connection_passes_and_none_of_ours_is_taken_away",
            "tests/api/test_proxy.py::test_an_id_that_is_not_sane_is_replaced",
        ),
    ),
)

SECURITY = (
    KnownFault(
        "F70",
        "lm-sys/FastChat#3776",
        "Anybody may register a worker: an address of the inside is then asked, or prompts go to a stranger.",
        covered_by(
            "tests/api/test_admin.py::test_a_key_that_is_set_is_asked_for_before_anything_else",
            "tests/api/test_admin.py::test_without_a_key_a_rebound_name_is_refused",
            "tests/api/test_admin.py::test_a_page_of_another_site_is_refused",
            "tests/api/test_admin.py::test_a_bad_url_is_told_with_its_rule",
            "tests/signals/test_monitor.py::test_a_hostile_answer_disturbs_nothing_else",
            "tests/core/fleet/test_allow.py::test_no_spelling_of_a_forbidden_address_is_taken",
            "tests/signals/test_destinations.py::test_a_name_that_leads_to_a_forbidden_place_is_refused",
            "tests/signals/test_pin.py::test_a_name_that_comes_to_stand_for_another_address_moves_nothing",
            "tests/upstream/test_pinning.py::test_a_redirect_is_an_answer",
        ),
    ),
    KnownFault(
        "F71",
        "diggerhq/opencomputer#273",
        "Who can write to the store can pretend to be a worker, and is believed.",
        NotOurs(
            "No worker registers itself or reports of itself through the store: each is asked. Who may write there is "
            "the operator's to say, by an ACL on the one prefix that all keys have.",
            (
                "tests/store/test_operations.py::test_no_key_is_left_outside_the_prefix_or_without_a_deadline",
                "tests/store/test_malformed.py::test_a_malformed_registration_is_skipped",
            ),
        ),
    ),
    KnownFault(
        "F72",
        "sgl-project/sglang#27048",
        "The user's own key and cookies go to the workers, and internal headers pass in either direction.",
        covered_by(
            "tests/api/test_proxy.py::test_what_reaches_the_worker_of_the_clients_headers",
            "tests/api/test_proxy.py::test_answers_headers_pass_but_for_the_workers_own",
            "tests/api/test_trust.py::test_a_worker_does_not_speak_for_the_gateway",
        ),
    ),
    KnownFault(
        "F73",
        "BerriAI/litellm#37053",
        "A field of the body names another destination, and the request goes there with the server's key.",
        covered_by("tests/api/test_trust.py::test_neither_body_nor_header_says_where_a_request_goes"),
    ),
    KnownFault(
        "F74",
        "CVE-2026-49468",
        "What needs a key is told by a URL built of the Host header, and a crafted one opens the admin API.",
        covered_by(
            "tests/api/test_trust.py::test_no_host_opens_what_needs_a_key",
            "tests/api/test_admin.py::test_no_host_opens_what_needs_a_key",
            "tests/api/test_refusals.py::test_only_the_exact_path_counts",
        ),
    ),
    KnownFault(
        "F76",
        "CVE-2025-46570",
        "The time of a first token tells one tenant what another has asked, also through a salt of its own choice.",
        covered_by(
            "tests/api/test_tenancy.py::test_the_salt_of_a_tenant",
            "tests/api/test_tenancy.py::test_salted_endpoints_are_those_of_vllms_schema",
            "tests/api/test_tenancy.py::test_equal_keys_of_two_tenants_never_meet",
            apart_from="Tenants share prefixes unless the operator says otherwise, and counts of cached tokens pass: "
            "under an overwritten salt they tell a tenant of its own prompts alone.",
        ),
    ),
    KnownFault(
        "F77",
        "FreshRSS/FreshRSS#7883",
        "A line end in a name that a client chose makes up a line of the log.",
        covered_by(
            "tests/api/test_trust.py::test_no_name_forges_a_line_of_the_log_and_no_prompt_is_in_it",
            "tests/api/test_trust.py::test_a_refusal_repeats_a_made_up_model_in_part_and_escaped",
            "tests/telemetry/test_logs.py::test_no_text_can_end_a_line_or_speak_to_a_terminal",
            "tests/telemetry/test_logs.py::test_long_texts_are_cut",
        ),
    ),
)

KNOWN_FAULTS = STREAMS_AND_HTTP + BODIES_AND_ENDPOINTS + SECURITY
