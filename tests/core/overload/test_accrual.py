"""When failures are enough."""

from app.core.overload.accrual import IN_A_ROW, WINDOW_S, Accrual


def test_five_in_a_row() -> None:
    accrual = Accrual()
    for _ in range(4):
        assert not accrual.failed(0.0)
    accrual.succeeded(0.0)
    for _ in range(4):
        assert not accrual.failed(0.0)
    assert accrual.failed(0.0)
    assert not accrual.failed(0.0), "after a mark only what comes then counts"


def test_one_in_four_among_enough() -> None:
    accrual = Accrual()
    found = []
    for number in range(1, 21):
        if number % 3 == 0:
            found.append(accrual.failed(0.0))
        else:
            accrual.succeeded(0.0)
    assert found == [False, False, False, True, False, False], "at twelve, of which a third failed"


def test_what_is_older_than_the_window_counts_no_more() -> None:
    def after(pause_s: float) -> bool:
        accrual = Accrual()
        for _ in range(4):
            accrual.failed(0.0)
            accrual.succeeded(0.0)
        accrual.failed(pause_s)
        return accrual.failed(pause_s)

    assert after(WINDOW_S / 2 + 1), "ten, of which six failed"
    assert not after(WINDOW_S + 1)


def test_what_is_ambiguous_counts_half() -> None:
    accrual = Accrual()
    times = 1
    while not accrual.failed(0.0, 0.5):
        times += 1
    assert times == 2 * IN_A_ROW


def test_two_connect_errors_or_one_and_a_probe_that_cannot_connect_either() -> None:
    accrual = Accrual()
    assert not accrual.probe_failed(reachable=False)
    assert not accrual.connect_failed()
    assert not accrual.probe_failed(reachable=True)
    assert accrual.probe_failed(reachable=False)
    assert accrual.connect_failed()
    for answered in (accrual.probe_succeeded, lambda: accrual.succeeded(0.0), lambda: accrual.failed(0.0)):
        accrual.connect_failed()
        answered()
        assert not accrual.connect_failed()
