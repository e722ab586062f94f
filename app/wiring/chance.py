"""Streams of chance from one seed."""

import random


def streams_of_chance(seed: int | None, name: str) -> tuple[random.Random, random.Random]:
    """One for decisions and one for jitter, so that more of one never shifts the other.

    `name` tells processes apart: with one stream for all they would draw the same workers at the same time.
    """
    chance = random.Random(None if seed is None else f"{seed}/{name}")
    return random.Random(chance.random()), random.Random(chance.random())
