"""The README's table of what is compared with real vLLM is the lane's, and each of its cells has tests."""

from pathlib import Path

from app.api.endpoints import ENDPOINTS
from tests.vllm.exchanges import EXCHANGES
from tests.vllm.table import CELLS, COLUMNS, Cell, outcomes, render

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_readme_shows_it() -> None:
    assert render(dict.fromkeys(CELLS, "passed")) in README.read_text(encoding="utf-8")


def test_each_cell_is_of_the_table_and_each_endpoint_is_in_it() -> None:
    paths = [endpoint.path for endpoint in ENDPOINTS if not endpoint.is_form]
    assert {cell.endpoint for cell in CELLS} == set(paths)
    assert all(cell.column in COLUMNS for cell in CELLS)
    assert all(Cell(path, "http") in CELLS for path in paths)


def test_the_exchanges_that_it_names_are_there() -> None:
    names = {test.partition("[")[2][:-1] for tests in CELLS.values() for test in tests if test.startswith("test_bytes")}
    assert names <= {exchange.name for exchange in EXCHANGES}


def test_a_cell_is_passed_only_when_each_of_its_tests_ran_and_passed() -> None:
    cell = Cell("/v1/messages/count_tokens", "http")
    (test,) = CELLS[cell]
    assert outcomes({test: True})[cell] == "passed"
    assert outcomes({test: False})[cell] == "FAILED"
    assert outcomes({})[cell] == "not run"
