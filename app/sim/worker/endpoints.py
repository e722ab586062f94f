"""The one tuple of endpoint families: a new family is one file with `ROUTES` and one line here."""

from app.sim.worker import (
    admin,
    chat,
    classify,
    completions,
    embeddings,
    messages,
    pooling,
    responses,
    score,
    tokenization,
)
from app.sim.worker.http import Route

FAMILIES = (
    admin,
    tokenization,
    chat,
    completions,
    responses,
    messages,
    embeddings,
    classify,
    pooling,
    score,
)

ROUTES: tuple[Route, ...] = tuple(route for family in FAMILIES for route in family.ROUTES)
