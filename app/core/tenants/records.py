"""Key sets <-> records of JSON values, for the channel between the processes of one gateway. Pure."""

from collections.abc import Mapping
from typing import Any

from app.core.fleet.priority import Priority
from app.core.fleet.tenant import Grant, KeySet, Limits, Plane


def keys_to_record(keys: KeySet) -> dict[str, Any]:
    return {
        "grants": [
            {
                "name": grant.name,
                "tenant": grant.tenant,
                "digest": grant.digest.hex(),
                "models": list(grant.models),
                "planes": [plane.value for plane in grant.planes],
                "not_before": grant.not_before,
                "expires": grant.expires,
                "limits": limits_to_record(grant.limits),
                "priority": grant.priority.value,
            }
            for grant in keys.grants
        ],
        "tenants": {tenant: limits_to_record(limits) for tenant, limits in keys.tenants.items()},
    }


def keys_from_record(record: Mapping[str, Any]) -> KeySet:
    return KeySet(
        tuple(
            Grant(
                name=grant["name"],
                tenant=grant["tenant"],
                digest=bytes.fromhex(grant["digest"]),
                models=tuple(grant["models"]),
                planes=tuple(map(Plane, grant["planes"])),
                not_before=grant["not_before"],
                expires=grant["expires"],
                limits=Limits(**grant["limits"]),
                priority=Priority(grant["priority"]),
            )
            for grant in record["grants"]
        ),
        {tenant: Limits(**limits) for tenant, limits in record["tenants"].items()},
    )


def limits_to_record(limits: Limits) -> dict[str, float | None]:
    return {
        "requests_per_minute": limits.requests_per_minute,
        "tokens_per_minute": limits.tokens_per_minute,
        "concurrency": limits.concurrency,
        "in_flight_bytes": limits.in_flight_bytes,
    }
