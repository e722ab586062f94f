"""What we tell the world: metrics and logs. It is told facts and never asked; nothing here raises into a request.

Rule 1: no prompt, no answer and no key is ever written down.
Rule 2: a label's values are bounded: a fixed set, the registered workers, or the first MODELS_MAX served models.
"""
