"""Runs cases through the reference and through cpshard's conformance runner."""

import json
import pathlib
import re
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any, Optional

from case import Case
from decisions import error_of, judge
from tally import Tally
from worlds import Worlds

FAILED = re.compile(r"^FAILED (\S+) \[[^\]]*\]: (.*)$", re.MULTILINE)
SKIPPED = re.compile(r"^skipped \S+ \([^)]*\): (.*)$", re.MULTILINE)
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.MULTILINE)


@dataclass
class Result:
    """`size`: of the input, in characters. `line`: of the corpus; empty when left out."""

    size: int = 0
    line: str = ""
    difference: str = ""


class Comparison:
    def __init__(self, worlds: Worlds, runner: str, keep: Optional[str] = None):
        self._worlds = worlds
        self._runner = runner
        self._keep = pathlib.Path(keep) if keep else None
        if self._keep:
            self._keep.mkdir(parents=True, exist_ok=True)

    def run(self, cases: list[Case], first: int = 0, tally: Optional[Tally] = None
            ) -> list[Result]:
        """Results in the order of the cases, counted in `tally` when there is one."""
        lines = [case.to_json(f"{case.backend}-{first + i}") for i, case in enumerate(cases)]
        results = [Result(size=len(json.dumps(line))) for line in lines]
        corpus = []
        for case, line, ranks, result in zip(cases, lines, self._worlds.run(lines), results):
            product = judge(case, ranks)
            if product is None:
                if tally:
                    tally.left_out += 1
                continue
            if tally:
                tally.add(case, ranks, product)
            line["source"] = "reference 0.7.0 executed"
            line["ranks"] = corpus_ranks(ranks)
            line["product"] = product
            result.line = json.dumps(line, separators=(",", ":"))
            corpus.append(result.line)
        differences, skipped = self._ask_runner(cases[0].backend, corpus, bool(tally))
        for line, result in zip(lines, results):
            result.difference = differences.get(line["id"], "")
        if tally:
            tally.failed += len(differences)
            tally.skipped += len(skipped)
        return results

    def _ask_runner(self, stem: str, corpus: list[str], keep: bool
                    ) -> tuple[dict[str, str], set[str]]:
        """Differences by id, and the ids that were skipped."""
        if not corpus:
            return {}, set()
        text = "\n".join(corpus) + "\n"
        if keep and self._keep:
            with open(self._keep / f"{stem}.jsonl", "a") as kept:
                kept.write(text)
        with tempfile.TemporaryDirectory(prefix="cpshard-parity-") as folder:
            path = pathlib.Path(folder) / f"{stem}.jsonl"
            path.write_text(text)
            done = subprocess.run([self._runner, "--corpus", str(path)], capture_output=True,
                                  text=True)
        closing = CLOSING.search(done.stdout)
        if done.returncode not in (0, 1) or not closing:
            raise RuntimeError(f"{self._runner} ended with {done.returncode}:\n"
                               f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
        differences = dict(FAILED.findall(done.stdout))
        skipped = {case_id for ids in SKIPPED.findall(done.stdout) for case_id in ids.split()}
        passed, failed, _ = (int(count or 0) for count in closing.groups())
        if failed != len(differences) or passed + failed + len(skipped) != len(corpus):
            raise RuntimeError(f"{self._runner} reports other counts than cases:\n{done.stdout}")
        return differences, skipped


def corpus_ranks(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As the corpus has them: one entry where the reference raises."""
    error = error_of(ranks)
    if error:
        return [{"rank": 0, "error": error}]
    return [{key: rank[key] for key in ("rank", "outputs", "layout")} for rank in ranks]
