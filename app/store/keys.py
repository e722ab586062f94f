"""The keys, all of them. Everything of one deployment is under one prefix (default `warmset:`).

    {prefix}{registry}:workers   hash    worker id -> registration, see codec.py     no TTL (ADMIN entries stay)
    {prefix}{registry}:removed   zset    worker id, scored by the ms at which its removal is forgotten
    {prefix}{registry}:orders    hash    worker id -> what an operator wants of it   TTL: that of the longest order
    {prefix}{load}:processes     hash    process id -> load, see codec.py            TTL: that of the youngest load
    {prefix}{tenants}:usage      hash    gateway id -> usage, see codec.py           TTL: that of the longest usage
    {prefix}{leader}:lease       hash    name, epoch and until: who leads            no TTL (its epoch must not fall)
    {prefix}{leader}:plan        hash    epoch, seq and plan, as last published      no TTL
    {prefix}{marks}:held         hash    gateway id -> its marks, see codec.py       TTL: that of the longest mark

The part in braces is written with its braces: it is the hash tag, so the keys of one script share a slot of a Cluster,
and the registry and the loads may live in different ones. Deadlines are written inside the values as milliseconds of
the server's clock and are checked by the scripts, which have read that clock: entries of a hash have no TTL of their
own before Redis 7.4. Values past their deadline are never returned, and are removed by whoever reads next, so a read
costs as much as there are live entries, and no key is ever searched for.
"""

DEFAULT_PREFIX = "warmset:"


class Keys:
    """The key names under one prefix."""

    __slots__ = ("leader", "loads", "marks", "orders", "plan", "removed", "usage", "workers")

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        """Raises ValueError for a prefix with a brace: it would become the hash tag of every key."""
        if "{" in prefix or "}" in prefix:
            raise ValueError(f"a key prefix may not contain braces: {prefix!r}")
        self.workers = f"{prefix}{{registry}}:workers"
        self.removed = f"{prefix}{{registry}}:removed"
        self.orders = f"{prefix}{{registry}}:orders"
        self.loads = f"{prefix}{{load}}:processes"
        self.marks = f"{prefix}{{marks}}:held"
        self.leader = f"{prefix}{{leader}}:lease"
        self.plan = f"{prefix}{{leader}}:plan"
        self.usage = f"{prefix}{{tenants}}:usage"
