"""Hysteresis of health."""

from app.core.overload.health import Health, HealthThresholds, HealthTracker


def tracker() -> HealthTracker:
    return HealthTracker(HealthThresholds(failures=3, successes=2))


def test_the_first_success_is_enough() -> None:
    health = tracker()
    assert health.state is Health.UNKNOWN
    assert health.probe_succeeded()
    assert health.state is Health.HEALTHY


def test_three_failures_in_a_row_and_two_successes_in_a_row() -> None:
    health = tracker()
    health.probe_succeeded()
    for _ in range(2):
        health.probe_failed(reachable=True)
    health.probe_succeeded()
    for _ in range(2):
        assert not health.probe_failed(reachable=True)
    assert health.state is Health.HEALTHY
    assert health.probe_failed(reachable=True)
    assert health.state is Health.UNHEALTHY
    assert not health.probe_succeeded()
    assert not health.probe_failed(reachable=True)
    assert not health.probe_succeeded()
    assert health.probe_succeeded()
    assert health.state is Health.HEALTHY


def test_unknown_stays_unknown_until_enough_failures() -> None:
    health = tracker()
    health.probe_failed(reachable=True)
    assert health.state is Health.UNKNOWN
    health.probe_failed(reachable=True)
    health.probe_failed(reachable=True)
    assert health.state is Health.UNHEALTHY


def test_who_cannot_be_connected_to_is_told_from_who_says_no() -> None:
    health = tracker()
    health.probe_succeeded()
    for _ in range(3):
        health.probe_failed(reachable=True)
    assert (health.state, health.can_connect, health.was_healthy) == (Health.UNHEALTHY, True, True)
    assert health.probe_failed(reachable=False)
    assert not health.can_connect
    assert not health.probe_failed(reachable=False)
    assert health.probe_failed(reachable=True)
    health.probe_failed(reachable=False)
    health.probe_succeeded()
    assert health.can_connect


def test_an_unreachable_probe_alone_says_little() -> None:
    health = tracker()
    assert not health.was_healthy
    health.probe_succeeded()
    assert not health.probe_failed(reachable=False)
    assert health.can_connect
