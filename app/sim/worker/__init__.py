"""The simulated worker: vLLM 0.32 on the wire, the engine model behind it.

`server.py` owns the process and the listener, `app.py` finds the route and shapes errors, `endpoints.py` is the one
tuple of endpoint families, and each family is one file with its `ROUTES`. `driver.py` runs the pure engine on the wall
clock. Every answer says that it is simulated (header `x-warmset-simulated`, and `system_fingerprint` where vLLM has
one). Shapes are those of vLLM 0.32.0: tests/sim/data/vllm holds its answers, and the tests compare.
"""
