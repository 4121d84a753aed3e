"""plot.py bench.json bench.svg: how far every row is from its goal, as a picture.

A mark is a median, its line the range from least to most; right of 1 the goal is met. Where a line
of the picture has several marks, a mark's shape says which.
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as pyplot  # noqa: E402

MET, MISSED, INK, PALE = "#0f766e", "#c2410c", "#1f2933", "#d5dbe1"
SHAPES = "osD^vP*X<"
LOWEST, HIGHEST = 0.05, 1000.0
LINE_INCHES = 0.21
TITLES = {"core": "plans, figures, executor (cpshard_bench)",
          "stream": "through cpshardd over TCP (cpshard_stream_bench)",
          "reference": "against the reference, in process"}


def margins(row):
    """How many times better than the goal: (median, least, most), of the goal that is nearest."""
    def of(goal):
        stats = row[goal["figure"]]
        if "at_least" in goal:
            figures = [stats[name] / goal["at_least"] for name in ("median", "min", "max")]
        else:
            figures = [goal["at_most"] / max(stats[name], 1e-12)
                       for name in ("median", "max", "min")]
        return [min(max(figure, LOWEST), HIGHEST) for figure in figures]
    return min(map(of, row["goals"]))


def place(row):
    """The line of the picture that the row stands on, and which mark of the line it is."""
    if row["part"] == "reference":
        return row["subject"], row["group"]
    line = f"{row['group']}: {row['subject']}"
    if row["part"] == "stream":
        return line, f"of {row['anchor']}, {row['unit']}" if row["anchor"] else row["unit"]
    return line, ""


def draw_part(axes, part, rows):
    lines = list(dict.fromkeys(place(row)[0] for row in rows))
    marks = list(dict.fromkeys(place(row)[1] for row in rows))
    for row in rows:
        line, mark = place(row)
        index = marks.index(mark)
        y = lines.index(line) + (index - (len(marks) - 1) / 2) * 0.8 / max(len(marks), 2)
        median, least, most = margins(row)
        colour = MET if row["met"] else MISSED
        axes.plot([least, most], [y, y], color=colour, linewidth=1.2, alpha=0.45, zorder=2)
        axes.plot(median, y, SHAPES[index % len(SHAPES)], color=colour, markersize=4.5, zorder=3)
    axes.axvline(1, color=INK, linewidth=1.4, zorder=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.tick_params(axis="x", labelsize=8, labelbottom=True)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_yticks(range(len(lines)), lines, fontsize=8)
    axes.set_title(TITLES[part], loc="left", fontsize=10, fontweight="bold")
    axes.grid(axis="x", color=PALE, linewidth=0.6)
    axes.tick_params(length=0, colors=INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    if len(marks) > 1:
        handles = [pyplot.Line2D([], [], linestyle="", marker=SHAPES[i % len(SHAPES)], color=INK,
                                 markersize=4.5, label=mark) for i, mark in enumerate(marks)]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=7,
                    frameon=False)


def draw(report, file):
    rows = [row for row in report["rows"] if row["met"] is not None]
    parts = [part for part in TITLES if any(row["part"] == part for row in rows)]
    if not parts:
        print("no row has a goal: nothing to draw")
        return
    of = {part: [row for row in rows if row["part"] == part] for part in parts}

    def height(part):
        lines, marks = (len({place(row)[i] for row in of[part]}) for i in (0, 1))
        return max(lines * (1 + 0.35 * max(marks - 2, 0)), 3)

    heights = [height(part) for part in parts]
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cpshard",
                            "font.family": "sans-serif", "text.color": INK,
                            "axes.labelcolor": INK})
    figure, axes = pyplot.subplots(
        len(parts), 1, figsize=(11, LINE_INCHES * sum(heights) + 0.9 * len(parts) + 0.6),
        height_ratios=heights, squeeze=False, layout="constrained", sharex=True)
    for part, of_part in zip(parts, axes[:, 0]):
        draw_part(of_part, part, of[part])
    axes[-1, 0].set_xlabel("times better than the goal (1 = the goal; log scale); green: the median "
                           "meets it, orange: it does not", fontsize=9, x=0.0, ha="left")
    facts = report["machine"]
    figure.suptitle(f"{facts['version']} against its goals; {facts['processor']}, "
                    f"{facts['cores']} cores, load {facts['load_before']:.1f}", fontsize=11,
                    x=0.01, ha="left")
    figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    draw(json.loads(pathlib.Path(sys.argv[1]).read_text()), sys.argv[2])
