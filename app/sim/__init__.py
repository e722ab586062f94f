"""Simulation: engines that behave and take time like vLLM's, without a model.

`engine/` is the model itself, pure and clockless; `worker/` puts it behind a real HTTP server on the wall clock. Both
the worker and any fleet simulation drive the same `engine.Engine`.
"""
