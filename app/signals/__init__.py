"""What is learnt of workers by asking them: health, load, models, version, and which process answers.

Each answer becomes an event of the core, given to a callback. Answers are untrusted: bounded, checked, and when they
cannot be used counted and logged once, never raised.
"""
