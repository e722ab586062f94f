"""Connections to workers: the data path's own HTTP/1.1 client on `asyncio.Protocol` and httptools.

Why not a library: one request costs 51 us less than over the cheapest one measured and 3.5 ms less than over httpx, and
what happens to a connection on cancellation, on a half-read body and on a stale keep-alive is ours to say.
"""
