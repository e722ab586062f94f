"""The keys: name, type, bounds, default, and the sentence that `--help` shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from app.config.addresses import listen_host, store_url, worker_url
from app.config.errors import MASK, shown
from app.config.keys_file import hash_keys_problem
from app.config.pools import PoolConfig
from app.core.fleet.allow import parse_allow_list
from app.core.routing.policies import DEFAULT_POLICY, POLICIES

POLICY_NAMES = tuple(policy.name for policy in POLICIES)

POLICY_ALIASES = {
    "roundrobin": "round_robin",  # production-stack
    "session": "consistent_hash",  # production-stack
    "consistent_hashing": "consistent_hash",  # sglang-router
}

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Offer:
    """How a key is offered: the heading it stands under in `--help`, and further flags that mean it."""

    heading: str
    flags: tuple[str, ...] = ()
    metavar: str | None = None


def _policy(name: str) -> str:
    name = POLICY_ALIASES.get(name, name)
    if name not in POLICY_NAMES:
        raise ValueError(f"must be one of {', '.join(POLICY_NAMES)}, not {shown(name)}")
    return name


def _secret(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    if text == MASK:
        raise ValueError("is the mask that --print-config prints in place of the secret")
    # A bearer token travels in a header: what cannot stand there can never match.
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be printable ASCII without spaces, and not empty")
    return secret


def _hash_keys(keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    problem = hash_keys_problem([key.get_secret_value() for key in keys]) if keys else None
    if problem is not None:
        raise ValueError(problem)
    return keys


def _keepalive(seconds: float) -> float:
    if 0 < seconds < 1:
        raise ValueError(f"must be 0 (off) or at least 1, not {seconds:g}")
    return seconds


def _store_url(secret: SecretStr) -> SecretStr:
    text = store_url(secret.get_secret_value())
    if MASK in text:
        raise ValueError("holds the mask that --print-config prints in place of the password")
    return secret


def _worker_urls(urls: tuple[str, ...]) -> tuple[str, ...]:
    seen: dict[str, None] = {}
    wrong = []
    for text in urls:
        try:
            url = worker_url(text)
        except ValueError as error:
            wrong.append(str(error))
            continue
        if url in seen:
            wrong.append(f"{shown(url)} is there twice")
        seen[url] = None
    if wrong:
        raise ValueError("; ".join(wrong))
    return tuple(seen)


def _worker_url_allow(patterns: tuple[str, ...]) -> tuple[str, ...]:
    parse_allow_list(patterns)
    return patterns


def _model_alias(aliases: Mapping[str, str]) -> Mapping[str, str]:
    for alias, canonical in aliases.items():
        if not alias or not canonical:
            raise ValueError("an alias and its model must not be empty")
        if alias == canonical:
            raise ValueError(f"{shown(alias)} is an alias of itself")
        if aliases.get(canonical) == alias:
            raise ValueError(f"{shown(alias)} and {shown(canonical)} are aliases of each other")
        if canonical in aliases:
            # Resolved in one step on the request path, so the first step must be the last.
            raise ValueError(
                f"{shown(alias)} points at {shown(canonical)}, which is an alias too; name the model that workers serve"
            )
    return dict(aliases)


Host = Annotated[str, AfterValidator(listen_host)]
Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
KeepAliveSeconds = Annotated[float, Field(ge=0, allow_inf_nan=False), AfterValidator(_keepalive)]
Secret = Annotated[SecretStr, AfterValidator(_secret)]

WORKERS, DATA, ADMIN, METRICS = "workers", "data listener", "admin listener", "metrics listener"
ROUTING, STORE, HEALTH, PROCESS = "routing", "store", "health and load of workers", "process"
WAITING = "requests that wait"


class Config(BaseModel):
    """The effective configuration. Made by `app.config.load`, which also checks the rules between keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    worker_urls: Annotated[
        tuple[str, ...],
        AfterValidator(_worker_urls),
        Field(description="workers to register at start, such as http://gpu-1:8000"),
        Offer(WORKERS, ("--static-backends",), "URL"),
    ] = ()
    worker_url_allow: Annotated[
        tuple[str, ...],
        AfterValidator(_worker_url_allow),
        Field(
            description="where workers may be, such as *.llm.svc:8000-8099 or https://10.0.0.0/8; without it anywhere, "
            "but those that are not in the configuration not at link-local and metadata addresses"
        ),
        Offer(WORKERS, (), "PATTERN"),
    ] = ()
    worker_api_key: Annotated[
        Secret | None, Field(description="bearer token sent to workers in place of the client's"), Offer(WORKERS)
    ] = None
    connect_timeout_secs: Annotated[
        Seconds, Field(description="time to connect to a worker, after which another is tried"), Offer(WORKERS)
    ] = 5.0
    request_timeout_secs: Annotated[
        Seconds,
        Field(description="time for a whole request, from its arrival to the end of the answer"),
        Offer(WORKERS),
    ] = 1800.0
    first_byte_timeout_secs: Annotated[
        Seconds, Field(description="time until a worker begins to answer; a reasoning model may think"), Offer(WORKERS)
    ] = 600.0
    stream_idle_timeout_secs: Annotated[
        Seconds, Field(description="time between two pieces of a worker's answer"), Offer(WORKERS)
    ] = 600.0

    max_worker_header_bytes: Annotated[
        int,
        Field(
            ge=65_536,
            description="headers of a worker's answer; the one of vectors in `bytes` grows by 114 bytes for each input",
        ),
        Offer(WORKERS),
    ] = 1_048_576

    policy: Annotated[
        str,
        AfterValidator(_policy),
        Field(description="how a worker is picked"),
        Offer(ROUTING, ("--routing-logic",), "{" + ",".join(POLICY_NAMES) + "}"),
    ] = DEFAULT_POLICY
    model_alias: Annotated[
        Mapping[str, str],
        AfterValidator(_model_alias),
        Field(description="a further name for a model; the request is sent on with the model's own"),
        Offer(ROUTING, (), "ALIAS=MODEL"),
    ] = Field(default_factory=dict)
    pools: Annotated[
        Mapping[str, PoolConfig],
        Field(description="what may serve a model: its engine, engine_version, model_revision, spec_decode"),
        Offer(ROUTING, (), "JSON"),
    ] = Field(default_factory=dict)
    expose_routing_headers: Annotated[
        bool, Field(description="name the worker, policy and reason in headers of each answer"), Offer(ROUTING)
    ] = False
    split_batches: Annotated[
        int,
        Field(
            ge=0,
            description="most inputs of one part, when a larger batch to embed, classify, pool or score is cut up and "
            "several workers answer the parts at once; 0: batches are not cut",
        ),
        Offer(ROUTING, (), "N"),
    ] = 0
    seed: Annotated[
        int | None,
        Field(ge=0, description="seed of the policies' random choices, to repeat a run"),
        Offer(ROUTING),
    ] = None

    queue_timeout_secs: Annotated[
        float,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="longest time that a request waits while no worker of its model can take it, be they gone or "
            "overloaded or busy (max_worker_requests); 0: it is refused at once",
        ),
        Offer(WAITING),
    ] = 0.0
    max_queue_requests: Annotated[
        Count, Field(description="requests that wait for one model, in one serving process"), Offer(WAITING)
    ] = 1024
    max_queue_tokens: Annotated[
        Count,
        Field(description="estimated tokens, prompts and answers, of the requests that wait for one model"),
        Offer(WAITING),
    ] = 4_000_000
    max_worker_requests: Annotated[
        int,
        Field(
            ge=0,
            description="requests that a worker has, of everybody, from which on others wait here, where priority and "
            "fairness count; 0: an engine takes any number into its own queue",
        ),
        Offer(WAITING, (), "N"),
    ] = 0

    host: Annotated[
        Host, Field(description="address that clients connect to; one that others can reach needs api_key"), Offer(DATA)
    ] = "127.0.0.1"
    port: Annotated[Port, Field(description="its port; 0 takes any free one"), Offer(DATA)] = 30000
    api_key: Annotated[
        tuple[Secret, ...],
        Field(description="keys of clients, each accepted as a bearer token; prefer the variable or the file"),
        Offer(DATA, (), "KEY"),
    ] = ()
    api_keys_file: Annotated[
        str | None,
        Field(min_length=1, description="YAML file of keys and limits of tenants; read again when it changes"),
        Offer(DATA, (), "FILE"),
    ] = None
    tenant_hash_key: Annotated[
        tuple[Secret, ...],
        AfterValidator(_hash_keys),
        Field(description="secret that keeps tenants' routing keys apart, the same in all replicas; two to rotate"),
        Offer(DATA, (), "KEY"),
    ] = ()
    tenant_hash_key_file: Annotated[
        str | None, Field(min_length=1, description="file that holds it, one key a line"), Offer(DATA, (), "FILE")
    ] = None
    tenant_salt: Annotated[
        Literal["off", "add", "overwrite"],
        Field(description="the tenant's own cache_salt in each request: never, where it has none, or always"),
        Offer(DATA, (), "{off,add,overwrite}"),
    ] = "off"
    insecure: Annotated[
        bool, Field(description="serve addresses that others can reach without any key"), Offer(DATA)
    ] = False
    max_body_bytes: Annotated[
        Count, Field(description="largest request body; more is answered with 413"), Offer(DATA)
    ] = 33_554_432
    max_inflight_body_bytes: Annotated[
        Count,
        Field(description="request bodies that a serving process holds, all together; more are answered with 503"),
        Offer(DATA),
    ] = 1_073_741_824
    max_memory_bytes: Annotated[
        int,
        Field(
            ge=0,
            description="memory of a serving process, near which requests are refused; 0: its part of the container's "
            "limit, if there is one",
        ),
        Offer(DATA),
    ] = 0
    max_head_bytes: Annotated[
        int,
        Field(ge=1024, description="largest head (request line and headers); more is answered with 431"),
        Offer(DATA),
    ] = 32_768
    max_headers: Annotated[
        int, Field(ge=16, description="headers of one request; more are answered with 431"), Offer(DATA)
    ] = 100
    max_url_bytes: Annotated[
        int, Field(ge=256, description="longest URL (path and query); a longer one is answered with 414"), Offer(DATA)
    ] = 8192
    request_head_timeout_secs: Annotated[
        float,
        Field(ge=0.1, allow_inf_nan=False, description="time for a whole head to arrive; then 408"),
        Offer(DATA),
    ] = 10.0
    min_body_bytes_per_sec: Annotated[
        Count,
        Field(description="slowest pace at which a body may arrive; a slower one is answered with 408"),
        Offer(DATA),
    ] = 1024
    body_pace_window_secs: Annotated[
        float,
        Field(
            ge=1,
            allow_inf_nan=False,
            description="time over which that pace is taken, and so the longest pause of a sender",
        ),
        Offer(DATA),
    ] = 10.0
    max_connections: Annotated[
        Count, Field(description="connections of clients per serving process; more are answered with 503"), Offer(DATA)
    ] = 10_000
    max_connections_per_client: Annotated[
        int,
        Field(
            ge=0,
            description="connections of one client address (IPv6: of one /64) per serving process; more are answered "
            "with 429; 0 for no limit, as behind a load balancer, where all clients have its address",
        ),
        Offer(DATA),
    ] = 0
    write_stall_timeout_secs: Annotated[
        Seconds, Field(description="time that a client may read nothing while bytes wait for it"), Offer(DATA)
    ] = 60.0
    max_batch_inputs: Annotated[
        Count, Field(description="entries of one batch of inputs, prompts or documents"), Offer(DATA)
    ] = 2048
    max_n: Annotated[Count, Field(description="answers to one prompt (the request's `n`)"), Offer(DATA)] = 16
    max_json_keys: Annotated[
        int, Field(ge=16, description="keys at the top level of a body; more are answered with 400"), Offer(DATA)
    ] = 256
    max_json_nodes: Annotated[
        int,
        Field(
            ge=1000,
            description="objects, lists and texts of a body, at all levels, keys too; more are answered with 400",
        ),
        Offer(DATA),
    ] = 100_000
    max_string_chars: Annotated[
        int,
        Field(ge=1024, description="longest text of a body, wherever it stands; a longer one gets 400"),
        Offer(DATA),
    ] = 16_777_216
    max_metadata_bytes: Annotated[
        int,
        Field(
            ge=0,
            description="largest header `metadata` of an answer in `bytes`; a larger one, which many clients cannot "
            "read, is answered with 400 and the advice to use `bytes_only`; 0: all pass",
        ),
        Offer(DATA),
    ] = 0
    sse_keepalive_secs: Annotated[
        KeepAliveSeconds,
        Field(
            description="time after which a stream that no worker has begun is begun here, and between comments that "
            "keep it open; 0: never, since its price is the worker's status: an error that comes later is an event in "
            "a stream with status 200"
        ),
        Offer(DATA),
    ] = 0.0

    admin_host: Annotated[
        Host, Field(description="address of the admin API; one that others can reach needs admin_api_key"), Offer(ADMIN)
    ] = "127.0.0.1"
    admin_port: Annotated[Port, Field(description="its port; 0 takes any free one"), Offer(ADMIN)] = 30001
    admin_api_key: Annotated[Secret | None, Field(description="bearer token of the admin API"), Offer(ADMIN)] = None

    prometheus_host: Annotated[
        Host, Field(description="address of /metrics, /livez and /readyz"), Offer(METRICS, ("--metrics-host",))
    ] = "127.0.0.1"
    prometheus_port: Annotated[
        Port, Field(description="its port; 0 takes any free one"), Offer(METRICS, ("--metrics-port",))
    ] = 29000

    redis_url: Annotated[
        Annotated[SecretStr, AfterValidator(_store_url)] | None,
        Field(description="Redis or Valkey shared by replicas; without it a server is started on a unix socket"),
        Offer(STORE, (), "URL"),
    ] = None
    store_dir: Annotated[
        str | None,
        Field(
            min_length=1, description="folder in which the started store keeps its data; without it, a temporary one"
        ),
        Offer(STORE, (), "DIR"),
    ] = None
    replicas: Annotated[
        Count, Field(description="gateway replicas that share the store; more than one need redis_url"), Offer(STORE)
    ] = 1

    health_check_interval_secs: Annotated[
        Seconds, Field(description="time between probes of a worker"), Offer(HEALTH)
    ] = 5.0
    health_check_timeout_secs: Annotated[
        Seconds, Field(description="time after which a probe counts as failed"), Offer(HEALTH)
    ] = 5.0
    health_failure_threshold: Annotated[
        Count, Field(description="failed probes in a row that make a worker unhealthy"), Offer(HEALTH)
    ] = 3
    health_success_threshold: Annotated[
        Count, Field(description="successful probes in a row that make it healthy again"), Offer(HEALTH)
    ] = 2
    overload_waiting_requests: Annotated[
        int,
        Field(
            ge=0,
            description="requests in an engine's queue from which on others are preferred, until half of it; 0: never",
        ),
        Offer(HEALTH, (), "N"),
    ] = 64
    overload_kv_usage: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="share of KV blocks in use from which on others are preferred, until 0.1 below; 0: never",
        ),
        Offer(HEALTH, (), "SHARE"),
    ] = 0.95
    stall_timeout_secs: Annotated[
        float,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="time without a step of an engine that has work, by its own counters, after which it is taken "
            "to be wedged; 0: never",
        ),
        Offer(HEALTH),
    ] = 60.0
    load_monitor_interval_secs: Annotated[
        Seconds,
        Field(description="time between samples of a worker's load"),
        Offer(HEALTH, ("--load-monitor-interval",)),
    ] = 1.0

    processes: Annotated[
        Count | None,
        Field(description="serving processes that share the port; without it, one per core that this one may use"),
        Offer(PROCESS, (), "N"),
    ] = None
    shutdown_delay_secs: Annotated[
        float,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="time to go on serving after SIGTERM while readiness says no, so that load balancers notice",
        ),
        Offer(PROCESS),
    ] = 0.0
    shutdown_grace_period_secs: Annotated[
        float,
        Field(ge=0, allow_inf_nan=False, description="time that running requests get to end after SIGTERM"),
        Offer(PROCESS),
    ] = 30.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Field(description="least severe level that is logged; info has one line per request"),
        Offer(PROCESS, (), "{" + ",".join(LOG_LEVELS) + "}"),
    ] = "info"
