"""Tenants: which keys open what, how much each tenant may use, and the names under which tenants never meet.

A limit holds for all gateways on one store together, and is enforced by each serving process alone, at once and
without asking anybody: of each limit a process has a *share*. What processes were recently asked for is reported up,
shares come down about once a second. The shares of one limit add up to at most the limit; a stale view of the others
can exceed it for a turn or two, never for longer.

    keyring.py     a presented key -> the grant it has, or why not
    admission.py   may this request of this grant begin now
    bucket.py      a rate as a bucket
    demand.py      what a process was asked for, and its decay
    shares.py      a limit and everybody's demand -> everybody's share
    namespace.py   tenant and routing key -> a key that no other tenant has
    charge.py      what a request that ended cost
    records.py     these values <-> JSON, for the channel between processes
"""
