"""Redis or Valkey: the facts that replicas share, the Lua that writes them, and the embedded server.

No type of the client library leaves this room: callers see values of `core.fleet.registry` and `StoreUnavailable`.
"""
