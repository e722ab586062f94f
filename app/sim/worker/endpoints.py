"""The one tuple of endpoint families: a new family is one file with `ROUTES` and one line here."""

from app.sim.worker import admin, chat, completions
from app.sim.worker.http import Route

FAMILIES = (admin, chat, completions)

ROUTES: tuple[Route, ...] = tuple(route for family in FAMILIES for route in family.ROUTES)
