"""The composition root: the only room that knows everybody.

A gateway is one control process and some serving processes. `control.py` builds the former (workers are watched, the
store is written, admin and metrics are served), `serving.py` the latter (requests are routed and relayed).
"""
