"""The rows of all benchmarks in one form, judged by their goals, and as a table.

A row is a dict, as bench.json holds it:
  part     core, stream, session or reference
  group    what it was measured with
  subject  what was measured
  value    {median, min, max} of the figure itself, in `unit`
  anchor   what was measured beside it in the same run, or ""
  ratio    {median, min, max} of how many times the anchor it reaches, or None
  goals    [{"figure": "value" or "ratio", "at_least" or "at_most": number}]
  met      whether the medians reach all goals; None where there are none
"""

import statistics

STREAM_RATIOS = {  # in the JSON of cpshard_stream_bench: what it is a ratio to, and of which figure
    "of_raw_touch": ("R_touch", "gb_per_second"), "of_raw": ("R", "gb_per_second"),
    "of_naive": ("N", "gb_per_second"), "of_memcpy": ("memcpy", "gb_per_second"),
    "cpu_of_raw": ("R", "cpu_seconds_per_gb")}
STREAM_UNITS = {"gb_per_second": "GB/s", "cpu_seconds_per_gb": "CPU s/GB",
                "client_minor_faults_per_gb": "client faults/GB",
                "server_minor_faults_per_gb": "server faults/GB"}


def is_met(row, goal):
    median = row[goal["figure"]]["median"]
    if "at_least" in goal:
        return median >= goal["at_least"]
    return median <= goal["at_most"]


def judged(part, group, subject, value, unit, anchor="", ratio=None, goals=()):
    row = {"part": part, "group": group, "subject": subject, "value": value, "unit": unit,
           "anchor": anchor, "ratio": ratio, "goals": list(goals), "met": None}
    if row["goals"]:
        row["met"] = all(is_met(row, goal) for goal in row["goals"])
    return row


def core_rows(report, part="core"):
    """Of the JSON of cpshard_bench."""
    def goals(row):
        return [goal | {"figure": "ratio" if goal["figure"] == "of_anchor" else "value"}
                for goal in row["goals"]]
    return [judged(part, row["group"], row["name"], row["value"], row["unit"], row["anchor"],
                   row["of_anchor"], goals(row)) for row in report["rows"]]


def session_rows(report):
    """Of the JSON of cpshard_session_bench."""
    return core_rows(report, "session")


def stream_rows(report):
    """Of the JSON of cpshard_stream_bench: a row per goal, as each has an anchor of its own."""
    rows = []
    for row in report["rows"]:
        megabytes = row["batch_bytes"] / 1e6
        group = f"{megabytes:.0f} MB" if megabytes >= 1 else f"{1e3 * megabytes:.0f} KB"
        for goal in row["goals"]:
            name = goal["figure"]
            anchor, figure = STREAM_RATIOS.get(name, ("", name))
            rows.append(judged("stream", group, row["name"], row[figure], STREAM_UNITS[figure],
                               anchor, row[name] if anchor else None,
                               [goal | {"figure": "ratio" if anchor else "value"}]))
        if not row["goals"]:
            rows.append(judged("stream", group, row["name"], row["gb_per_second"], "GB/s",
                               "R_touch" if row["of_raw_touch"] else "", row["of_raw_touch"]))
    return rows


def stats_of(samples):
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples)}


def reference_rows(report):
    """Of the JSON of bench_reference.py."""
    rows = []
    for row in report:
        size = row["size"]
        group = f"B={size['rows']}, S={size['length']}, cp={size['cp_size']}"
        goals = [] if row["goal"] is None else [{"figure": "ratio", "at_least": row["goal"]}]
        rows.append(judged("reference", group, row["case"], stats_of(row["ours"]), "ms",
                           "reference", stats_of([a / b for a, b in zip(row["theirs"],
                                                                        row["ours"])]), goals))
    return rows


def number_text(number):
    """Three digits or so."""
    if number == 0 or abs(number) >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}" if abs(number) >= 0.1 else (
        f"{number:.3f}")


def stats_text(stats):
    return (f"{number_text(stats['median'])} "
            f"({number_text(stats['min'])}-{number_text(stats['max'])})")


def goal_text(row):
    def text(goal):
        sign, number = (">=", goal["at_least"]) if "at_least" in goal else ("<=", goal["at_most"])
        return f"{sign} {number:g} {row['unit'] if goal['figure'] == 'value' else 'x'}"
    return ", ".join(map(text, row["goals"]))


def cells_of(row):
    ratio = f"{stats_text(row['ratio'])} x" if row["ratio"] else ""
    met = {True: "met", False: "NOT MET", None: ""}[row["met"]]
    return [row["part"], f"{row['group']}: {row['subject']}",
            f"{stats_text(row['value'])} {row['unit']}", ratio, row["anchor"], goal_text(row), met]


def table(rows):
    """Markdown, with columns that stand below each other in a terminal, too."""
    head = ["part", "what", "median (min-max)", "times the anchor", "anchor", "goal", ""]
    lines = [head, ["---"] * len(head), *map(cells_of, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths))
                   + " |\n" for line in lines)


def summary(rows):
    goals = [row for row in rows if row["met"] is not None]
    missed = sum(not row["met"] for row in goals)
    return f"{len(goals)} rows with goals: {len(goals) - missed} met, {missed} not met"
