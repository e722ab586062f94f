"""The imperative shell: runs the Router, executes its commands through ports, reports back with events.

Knows the edges only through `ports.py`; `wiring` passes the real ones in.
"""
