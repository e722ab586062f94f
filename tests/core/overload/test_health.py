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


def test_a_connect_error_and_a_probe_that_cannot_connect() -> None:
    health = tracker()
    health.probe_succeeded()
    assert not health.connect_failed()
    assert not health.probe_failed(reachable=True), "it answers, so the connect error was of the moment"
    assert health.probe_failed(reachable=False)
    assert health.state is Health.UNHEALTHY


def test_two_connect_errors_unless_something_was_answered_between() -> None:
    health = tracker()
    health.probe_succeeded()
    health.connect_failed()
    health.answered()
    assert not health.connect_failed()
    assert health.connect_failed()
    assert health.state is Health.UNHEALTHY
