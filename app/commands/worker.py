"""Run one simulated vLLM worker: a real HTTP server that answers like vLLM 0.32 and takes the time an H100 would.

There is no model behind it. The text is made up, the timing comes from an engine model (continuous batching, chunked
prefill, paged prefix cache) with measured step times, and every answer carries `x-warmset-simulated: true`.

  warmset worker --port 8001 --served-model-name demo
  warmset worker --port 0 --task embed --served-model-name vectors --speed inf

Options are named as vLLM's are. When it listens, one line on standard error says where:
`simulated worker ready on http://127.0.0.1:8001`. SIGTERM ends running streams with finish_reason "abort" and exits
within five seconds; a second signal exits at once.
"""

import argparse
import sys

from app.sim.worker.options import PROFILE_NAMES, TASKS, WorkerOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    default = WorkerOptions()
    add = parser.add_argument
    add("--host", default=default.host)
    add("--port", type=int, default=default.port, help="0 takes a free port (default: %(default)s)")
    add(
        "--served-model-name",
        action="append",
        metavar="NAME",
        help=f"repeat for aliases; answers carry the first (default: {default.served_model_names[0]})",
    )
    add("--model-profile", choices=PROFILE_NAMES, default=default.model_profile, help="whose speed (default: tp8)")
    add("--task", choices=TASKS, default=default.task, help="which endpoints exist (default: %(default)s)")
    add(
        "--speed",
        type=float,
        default=default.speed,
        help="divides every duration: 10 is ten times faster, inf never waits (default: %(default)s)",
    )
    add("--max-num-seqs", type=int, default=default.max_num_seqs, metavar="N")
    add("--max-num-batched-tokens", type=int, default=default.max_num_batched_tokens, metavar="N")
    add("--max-num-queued-reqs", type=int, metavar="N", help="503 beyond N running and queued (default: no limit)")
    add("--max-model-len", type=int, metavar="N", help="tokens of prompt and output (default: the profile's)")
    add("--block-size", type=int, default=default.block_size, metavar="N")
    add("--num-gpu-blocks-override", type=int, metavar="N", help="KV cache blocks (default: the profile's)")
    add("--api-key", help="ask for this bearer token on /v1")
    add("--seed", type=int, default=default.seed, help="another seed says other things")
    add("--embedding-dim", type=int, default=default.embedding_dim, metavar="N")
    add("--labels", default=",".join(default.labels), help="comma-separated labels of --task classify")
    add("--enable-server-load-tracking", action="store_true", help="count requests in GET /load (else always 0)")
    add("--enable-request-id-headers", action="store_true", help="answer with x-request-id")
    add(
        "--die-with-parent",
        type=int,
        nargs="?",
        const=0,
        metavar="PID",
        help="do not outlive the process that started this one (PID: refuse to start when that is no longer it)",
    )


def run(args: argparse.Namespace) -> int:
    options = WorkerOptions(
        host=args.host,
        port=args.port,
        served_model_names=tuple(args.served_model_name or WorkerOptions().served_model_names),
        model_profile=args.model_profile,
        task=args.task,
        speed=args.speed,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        max_num_queued_reqs=args.max_num_queued_reqs,
        max_model_len=args.max_model_len,
        block_size=args.block_size,
        num_gpu_blocks_override=args.num_gpu_blocks_override,
        api_key=args.api_key,
        seed=args.seed,
        embedding_dim=args.embedding_dim,
        labels=tuple(label.strip() for label in args.labels.split(",") if label.strip()),
        enable_server_load_tracking=args.enable_server_load_tracking,
        enable_request_id_headers=args.enable_request_id_headers,
        parent_pid=args.die_with_parent,
    )
    from app.sim.worker.server import serve

    try:
        return serve(options)
    except (ValueError, OSError) as error:
        print(f"warmset worker: {error}", file=sys.stderr)
        return 1
