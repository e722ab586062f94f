"""The one tuple of endpoint families: a new family is one file with `ROUTES` and one line here."""

from app.sim.worker import (
    admin,
    chat,
    chat_batch,
    classify,
    cohere,
    completions,
    embeddings,
    generative_scoring,
    messages,
    pooling,
    responses,
    scale_out,
    score,
    tokenization,
)
from app.sim.worker.http import Route

FAMILIES = (
    admin,
    tokenization,
    chat,
    chat_batch,
    completions,
    responses,
    messages,
    generative_scoring,
    scale_out,
    embeddings,
    cohere,
    classify,
    pooling,
    score,
)

ROUTES: tuple[Route, ...] = tuple(route for family in FAMILIES for route in family.ROUTES)
