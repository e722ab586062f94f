"""Configuration: the only reader of the configuration file and of the environment.

One flat set of keys. Key `foo_bar` is flag `--foo-bar`, variable `WARMSET_FOO_BAR` and YAML key `foo_bar`; a flag wins
over a variable, a variable over the file, the file over the default. `schema.py` declares the keys, and everything else
(flags, help, variables, checks, `--print-config`) is derived from it: to add a key, add a field there.

Rule 1: what is not understood is refused, and all problems are told at once.
Rule 2: a secret is never shown: not in an error, not in a repr, not by `--print-config`.
"""
