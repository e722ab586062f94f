"""A request as one of its tenant's: the model it may ask for, its routing key, the salt of its prefix cache.

The order is part of the contract, because prefix keys are computed on what is sent: first the model alias is spliced
into the body (facts.py), then the salt (here), and only then is anything computed on the bytes.
"""

from collections.abc import Sequence
from enum import StrEnum
from math import ceil

from app.api.facts import Inbound
from app.api.splice import insert_member, set_member
from app.core.fleet.exchange import Header
from app.core.fleet.request import RequestFacts
from app.core.fleet.tenant import Grant
from app.core.tenants.admission import Admission
from app.core.tenants.meter import Meter, Over
from app.core.tenants.namespace import Namespace

SALT = "cache_salt"


class TenantSalt(StrEnum):
    """What becomes of a body's `cache_salt`, by which vLLM keeps prefix caches apart."""

    OFF = "off"
    """It passes, and so does its absence."""
    ADD = "add"
    """The tenant's is put where there is none; a client that knows what it does may keep its users apart itself."""
    OVERWRITE = "overwrite"
    """The tenant's, always: a salt of the client's choice is how it would meet another tenant's cache."""


class Tenancy:
    """admission: the tenants' limits. namespace: makes keyed names. salt: what becomes of `cache_salt`."""

    def __init__(self, admission: Admission, namespace: Namespace, salt: TenantSalt) -> None:
        self.admission = admission
        self._namespace = namespace
        self._salt = salt

    def claim(self, inbound: Inbound, grant: Grant, *, takes_salt: bool) -> Inbound:
        """The request with the tenant's names in it. takes_salt: the endpoint knows `cache_salt`."""
        facts, body = inbound.facts, inbound.body
        tenant = grant.tenant
        if takes_salt and self._salts(inbound):
            splice = set_member if SALT in inbound.document else insert_member
            body = splice(body, SALT, self._namespace.cache_salt(tenant))
        self.own(facts, grant)
        return inbound._replace(body=body)

    def own(self, facts: RequestFacts, grant: Grant) -> None:
        """Make the request its tenant's."""
        facts.tenant = grant.tenant
        facts.priority = min(facts.priority, grant.priority)
        if facts.key is not None:
            facts.key = self._namespace.routing_key(grant.tenant, facts.key)

    def _salts(self, inbound: Inbound) -> bool:
        if self._salt is TenantSalt.ADD:
            return inbound.document.get(SALT) is None
        return self._salt is TenantSalt.OVERWRITE


def rate_limit_headers(meters: Sequence[Meter], now: float) -> list[Header]:
    """What is left, as OpenAI tells it: of the first of these that limits requests, and of the first that does tokens.

    The limit is the whole one; what remains is this process's share of it, which is what the next request over the same
    connection will find.
    """
    headers: list[Header] = []
    for meter in meters:
        if meter.requests is not None and meter.limits.requests_per_minute is not None:
            limit, level = meter.limits.requests_per_minute, meter.requests.level(now)
            headers += _told(b"requests", limit, level, meter.requests.full_in_s(now))
            break
    for meter in meters:
        if meter.tokens is not None and meter.limits.tokens_per_minute is not None:
            limit, level = meter.limits.tokens_per_minute, meter.tokens.level(now)
            headers += _told(b"tokens", limit, level, meter.tokens.full_in_s(now))
            break
    return headers


def retry_headers(over: Over) -> list[Header]:
    """When the request would be let in; whole seconds for everybody, and milliseconds for OpenAI's SDKs."""
    if over.is_final:
        return [(b"x-should-retry", b"false")]
    wait_s = over.retry_after_s
    return [(b"retry-after", b"%d" % max(1, ceil(wait_s))), (b"retry-after-ms", b"%d" % max(1, ceil(wait_s * 1000)))]


def _told(kind: bytes, limit: float, remaining: float, reset_s: float) -> list[Header]:
    return [
        (b"x-ratelimit-limit-" + kind, b"%d" % limit),
        (b"x-ratelimit-remaining-" + kind, b"%d" % max(0, int(remaining))),
        (b"x-ratelimit-reset-" + kind, _duration(reset_s)),
    ]


def _duration(seconds: float) -> bytes:
    """As OpenAI writes it: `120ms`, `1.5s`, `6m0s`."""
    if seconds < 1:
        return b"%dms" % ceil(seconds * 1000)
    minutes, rest = divmod(seconds, 60)
    return b"%dm%ds" % (minutes, rest) if minutes else b"%.3gs" % rest
