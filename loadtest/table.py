"""A report as Markdown tables."""

from collections.abc import Iterable
from typing import Any

Row = Iterable[str]


def render(report: dict[str, Any]) -> str:
    machine = report["machine"]
    load = machine["load_average_before"][0], machine["load_average_after"][0]
    lines = [
        f"{report['date']}, commit {report['commit'] or 'unknown'}, {machine['cores']} cores, "
        f"Python {machine['python']}, load average {load[0]:.1f} before and {load[1]:.1f} after, "
        f"medians of {report['rounds']} rounds" + (" (quick: no measurement)" if report["quick"] else ""),
        "",
    ]
    for name, cell in report["cells"].items():
        is_stream = "gap_p99_ms" in cell["rows"]["direct"]
        heading, columns = (_stream_heading, _stream_row) if is_stream else (_request_heading, _request_row)
        lines += [f"{name}: {cell['title']}", ""]
        lines += _table(heading(), ([target, *columns(row, cell)] for target, row in _named(cell)))
        lines.append("")
    idle, memory = report["idle"], report["memory"]
    lines.append(
        f"Idle with {idle['workers']} workers: {idle['all_cpu_ms_per_s']:.1f} ms of CPU per second, "
        f"{idle['serving_cpu_ms_per_s']:.1f} of them in the serving process. "
        f"Memory at the end: serving process {memory['serving_rss_mib']:.0f} MiB, control process "
        f"{memory['control_rss_mib']:.0f} MiB, all with the store {memory['all_rss_mib']:.0f} MiB."
    )
    for name, target in report["targets"].items():
        verdict = "met" if target["met"] else "MISSED"
        lines.append(f"Target {name} <= {target['at_most']:g}: {target['is']:.3g}, {verdict}.")
    lines += [f"Warning: {warning}." for warning in report["warnings"]]
    return "\n".join(lines)


def _named(cell: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    rows: dict[str, dict[str, Any]] = cell["rows"]
    for name, row in rows.items():
        yield name, row | {"added": cell["added"].get(name, {}), "base": rows["uvicorn"]}


def _request_heading() -> list[str]:
    return ["", "CPU ms per request", "x uvicorn", "min - max", "requests/s", "p50 ms", "p99 ms", "+p50", "+p99",
            "server core", "waited", "stub", "client"]  # fmt: skip


def _request_row(row: dict[str, Any], cell: dict[str, Any]) -> Row:
    figure = "cpu_ms_per_request"
    return [
        _number(row[figure] or None, 3),
        _ratio(row[figure], row["base"][figure]),
        _range(row["spread"][figure], 3),
        _number(row["rps"], 0),
        _number(row["latency_p50_ms"], 2),
        _number(row["latency_p99_ms"], 2),
        _number(row["added"].get("p50_ms"), 2),
        _number(row["added"].get("p99_ms"), 2),
        *_cores(row),
    ]


def _stream_heading() -> list[str]:
    return ["", "CPU us per event", "x uvicorn", "min - max", "events/s", "events per piece", "TTFT p50 ms", "p99 ms",
            "gap p50 ms", "p99 ms", "server core", "waited", "stub", "client"]  # fmt: skip


def _stream_row(row: dict[str, Any], cell: dict[str, Any]) -> Row:
    figure = "cpu_us_per_event"
    return [
        _number(row[figure] or None, 1),
        _ratio(row[figure], row["base"][figure]),
        _range(row["spread"][figure], 1),
        _number(row["events_per_s"], 0),
        _number(row["events_per_piece"], 2),
        _number(row["ttft_p50_ms"], 1),
        _number(row["ttft_p99_ms"], 1),
        _number(row["gap_p50_ms"], 1),
        _number(row["gap_p99_ms"], 1),
        *_cores(row),
    ]


def _cores(row: dict[str, Any]) -> Row:
    waited = f"{row['server_waited']:.0%}" if row["server_core"] else ""
    server, stub, client = (
        f"{row[part]:.0%}" if row[part] else "" for part in ("server_core", "stub_core", "client_core")
    )
    return [server, waited, stub, client]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _ratio(value: float | None, base: float | None) -> str:
    return f"{value / base:.2f}" if value and base else ""


def _range(values: list[float], digits: int) -> str:
    return f"{values[0]:.{digits}f} - {values[1]:.{digits}f}" if values and values[1] else ""


def _table(heading: list[str], rows: Iterable[Row]) -> list[str]:
    cells = [heading, *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heading))]
    lines = []
    for row in cells:
        texts = [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("| " + " | ".join(texts) + " |")
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return [lines[0], "| " + " | ".join(rule) + " |", *lines[1:]]
