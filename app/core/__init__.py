"""The decisions: which worker serves a request, and why.

Rule 1: sans-io. Nothing here imports I/O, a clock, chance or a log; `now` is an argument in monotonic seconds and may
not run backwards; chance comes from a passed-in generator.
Rule 2: one door. Production, shadow, replay and simulation drive the same `Router` with events and obey its commands.
Rule 3: a refusal is a value with a reason. An exception raised here is a broken invariant, never an outcome.
Rule 4: no builtin `hash()` and no iteration over a set: both differ between processes, and replicas must agree.
"""
