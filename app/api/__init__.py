"""The HTTP edge: requests -> RequestFacts, verdicts and answers -> responses.

The data plane is pure ASGI, because each layer of a framework costs as much as the rest of the path together.
It reaches workers, store and clock only through `runtime`.
"""
