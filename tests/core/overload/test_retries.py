"""The budget of retries."""

from app.core.overload.retries import FLOOR_PER_S, SHARE, WINDOW_S, RetryBudget


def test_a_floor_for_who_asks_little() -> None:
    budget = RetryBudget()
    assert sum(budget.withdraw(0.0) for _ in range(100)) == FLOOR_PER_S
    assert sum(budget.withdraw(1.0) for _ in range(100)) == FLOOR_PER_S
    assert sum(budget.withdraw(1000.0) for _ in range(100)) == FLOOR_PER_S, "it does not grow while nobody asks"


def test_a_share_of_requests_for_who_asks_much() -> None:
    """I13: a hundred thousand requests of which each wants to be sent again, at 2,000 a second."""
    budget, made = RetryBudget(), 0
    for number in range(100_000):
        now = number / 2000
        budget.deposit()
        made += budget.withdraw(now)
    seconds = 100_000 / 2000
    assert made <= SHARE * 100_000 + FLOOR_PER_S * (seconds + WINDOW_S)
    assert made >= SHARE * 100_000 * 0.99
