"""How evenly layouts spread the work: balance.py CP_SIZE BATCH OPTIONS [BATCH OPTIONS ...]

Prints per layout the columns of a row, the share of padding, and I_attn (the largest rank's area of
attention over the mean) within documents, under a causal and a full mask, as `cpshard plan` says.
"""

import json
import subprocess
import sys


def plan(cp_size, batch, options):
    command = ["cpshard", "plan", "--cp", cp_size, "--in", batch, "--options", options, "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def main():
    cp_size, arguments = sys.argv[1], sys.argv[2:]
    print("columns  padding  causal   full  options")
    for batch, options in zip(arguments[::2], arguments[1::2]):
        summary = plan(cp_size, batch, options)
        tokens, balance = summary["totals"]["tokens"], summary["totals"]["balance"]
        columns = int(tokens["real"]) + int(tokens["pad"])
        print(f"{columns:7}  {int(tokens['pad']) / columns:6.1%}"
              f"  {balance['causal_documents']['imbalance']:6.3f}"
              f" {balance['full_documents']['imbalance']:6.3f}  {options}")


if __name__ == "__main__":
    main()
