"""Runs every benchmark and brings their rows together: one table, bench.json, a plot.

everything.py --bin build/bin --out build/bench [--quick] [--reference PYTHON] [--plot PYTHON]
everything.py --out build/bench --table [--all]

PYTHON: an interpreter with the reference package, and one with matplotlib; without them there are
no such rows, and no plot. --table prints the table of the last run again: rows with goals, or all.
The exit status tells whether all programs ran, whatever they measured.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import bench_rows

HERE = pathlib.Path(__file__).resolve().parent
REFERENCE = HERE.parent / "parity" / "bench_reference.py"
QUICK = {"core": ["--rounds", "3"],
         "stream": ["--rounds", "2", "--seconds-per-row", "0.1", "--sizes", "64KiB,16MiB"],
         "session": ["--rounds", "2", "--batches", "24", "--calls", "100"],
         "reference": ["--rounds", "1", "--only", "contiguous", "round_robin", "thd", "qwen3_8"]}
ROWS = {"core": bench_rows.core_rows, "stream": bench_rows.stream_rows, "session": bench_rows.session_rows,
        "reference": bench_rows.reference_rows}


def machine(binaries):
    """What figures depend on."""
    models = [line.split(":", 1)[1].strip()
              for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
              if line.startswith("model name")]
    version = subprocess.run([binaries / "cpshardd", "--version"], capture_output=True, text=True,
                             check=True).stdout.splitlines()
    return {"processor": models[0] if models else "unknown", "cores": os.cpu_count(),
            "load_before": os.getloadavg()[0], "version": version[0],
            **dict(line.split(": ", 1) for line in version[1:])}


def machine_text(facts):
    return (f"{facts['processor']}, {facts['cores']} cores, load {facts['load_before']:.1f} before "
            f"the run; {facts['version']}, {facts['commit']}, {facts['build']}, "
            f"{facts['compiler']}")


def commands(arguments):
    made = {"core": [arguments.bin / "cpshard_bench"],
            "stream": [arguments.bin / "cpshard_stream_bench"],
            "session": [arguments.bin / "cpshard_session_bench"]}
    if arguments.reference:
        made["reference"] = [arguments.reference, "-B", REFERENCE, "--timer",
                             arguments.bin / "cpshard_shard_timer"]
    return made


def measure(arguments):
    """The rows of all programs, and the parts that did not come to their end."""
    rows, failed = [], []
    for part, command in commands(arguments).items():
        print(f"\n== {part}", flush=True)
        file = arguments.out / f"{part}.json"
        file.unlink(missing_ok=True)
        options = QUICK[part] if arguments.quick else []
        done = subprocess.run([*map(str, command), "--json", str(file), *options])
        if done.returncode != 0:
            print(f"{part}: ended with {done.returncode}; its rows are left out")
            failed.append(part)
            continue
        rows += ROWS[part](json.loads(file.read_text()))
    return rows, failed


def show(report, every=False):
    rows = [row for row in report["rows"] if every or row["met"] is not None]
    print(machine_text(report["machine"]) + ("; quick" if report["quick"] else "") + "\n")
    print(bench_rows.table(rows) + "\n" + bench_rows.summary(rows))


def plot(arguments, file):
    if not arguments.plot:
        print("no picture: there is no matplotlib")
        return True
    picture = arguments.out / "bench.svg"
    done = subprocess.run([arguments.plot, "-B", str(HERE / "plot.py"), str(file), str(picture)])
    if done.returncode == 0:
        print(f"picture: {picture}")
    return done.returncode == 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, help="the folder of the programs")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder of results")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and sizes")
    parser.add_argument("--reference", help="a Python with the reference package")
    parser.add_argument("--plot", help="a Python with matplotlib")
    parser.add_argument("--table", action="store_true", help="print the last run's table, no more")
    parser.add_argument("--all", action="store_true", help="with --table: rows without goals, too")
    arguments = parser.parse_args()
    if not arguments.table and not arguments.bin:
        parser.error("--bin is missing")
    return arguments


def main():
    arguments = parse_arguments()
    file = arguments.out / "bench.json"
    if arguments.table:
        if not file.exists():
            return f"{file} is not there: run the benchmarks first"
        show(json.loads(file.read_text()), arguments.all)
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine(arguments.bin), "quick": arguments.quick}
    report["rows"], failed = measure(arguments)
    file.write_text(json.dumps(report, indent=1) + "\n")
    print("\n== all")
    show(report)
    print(f"all figures: {file}")
    return 0 if plot(arguments, file) and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
