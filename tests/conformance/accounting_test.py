"""Every case of the golden corpus is passed or skipped by name, and nothing is skipped silently.

Usage: accounting_test.py RUNNER GOLDEN_DIR

What must pass is counted here from the corpus, not taken from the runner.
"""

import collections
import json
import re

from corpus_cases import GOLDEN, RunnerTest, main, run_files

# What cpshard can do; a backend that is built is added here.
BUILT = {"identity", "contiguous", "round_robin", "round_robin_aux_only", "index_map",
         "te_index_map", "thd_convert", "thd_chunks", "te_thd", "glm_dsa", "dsv4",
         "dsv4_multiple", "dsv41",
         "gemma4", "kimi_k3", "kimi_linear", "blockdiag", "glm5_next", "mimo_te",
         "qwen3_8_flash_next", "magi", "magi_partition", "magi_layout", "in_forward_round_robin",
         "in_forward_contiguous", "mtp_inputs", "shard_token_tensor", "gather_token_tensor",
         "gather_sequence"}


def is_driven(case):
    undecided = case["product"].get("expect", {}) is None
    return case["backend"] in BUILT and not case.get("words") and not undecided


class Accounting(RunnerTest):
    def test_every_case_of_every_file_is_accounted_for(self):
        passed, skipped = collections.Counter(), {}
        files = sorted(GOLDEN.glob("*.json*"))
        for path in files:
            if path.suffix == ".json":
                vectors = json.loads(path.read_text())
                passed[f"{path.stem}/dispatch"] = len(vectors)
                continue
            for line in path.read_text().splitlines():
                case = json.loads(line)
                family = f"{path.stem}/{case['backend']}"
                if is_driven(case):
                    passed[family] += 1
                else:
                    skipped.setdefault(family, set()).add(case["id"])
        result = run_files(files)
        self.assertEqual(result.returncode, 0, result.stdout)

        counts = re.findall(r"^family (\S+): (\d+) passed, (\d+) failed, (\d+) skipped$",
                            result.stdout, re.MULTILINE)
        self.assertEqual({family: tuple(map(int, numbers)) for family, *numbers in counts},
                         {family: (passed[family], 0, len(skipped.get(family, ())))
                          for family in [*passed, *skipped]})
        listed = {}
        for family, ids in re.findall(r"^skipped (\S+) \(.*\): (.*)$", result.stdout, re.MULTILINE):
            listed.setdefault(family, set()).update(ids.split(" "))
        self.assertEqual(listed, skipped)
        self.assertEqual(result.stdout.splitlines()[-1],
                         f"{passed.total()} passed, 0 failed, "
                         f"{sum(map(len, skipped.values()))} skipped")


if __name__ == "__main__":
    main()
