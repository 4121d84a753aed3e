"""Trains a tiny transformer on cp ranks that a cpshardd feeds.

    python examples/train_cp.py --cp 4                                  the losses of --cp 1
    python examples/train_cp.py --cp 4 --checkpoint DIR --kill-at 5     all processes die in step 5
    python examples/train_cp.py --cp 4 --checkpoint DIR                 goes on with step 5

Real processes: a server, a loader, and cp trainers with a gloo group. The part that a trainer
writes is train(); everything else is a model, data and the starting of processes.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from typing import Any, Iterator

import torch
import torch.distributed as dist
from torch.nn import functional

import cpshard
import cpshard.torch

from processes import run_job
from tiny_model import TinyTransformer

OPTIONS = {"round_robin": {}, "padding_token_id": 0}
ROWS, TOKENS, VOCABULARY = 4, 50, 64
IGNORED = -100


class Rows:
    """Data: batches `[ROWS, TOKENS]` of rows that count in steps of their own, some shorter."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for step in range(self.steps):
            random = torch.Generator().manual_seed(step)
            begin, stride = torch.randint(1, VOCABULARY, (2, ROWS, 1), generator=random)
            ids = (begin + stride * torch.arange(TOKENS + 1)) % VOCABULARY
            labels = ids[:, 1:].clone()
            length = torch.randint(TOKENS // 2, TOKENS, (ROWS, 1), generator=random)
            labels[torch.arange(TOKENS) >= length] = IGNORED
            yield {"input_ids": ids[:, :-1], "labels": labels}


def load(steps: int) -> None:
    """The loader's process."""
    with cpshard.loader(Rows(steps), steps=steps) as loader:
        loader.wait()


def columns_of(layout: cpshard.ShardLayout) -> torch.Tensor:
    """The padded columns of the rank's slots, int64 `[L]`."""
    return torch.cat([torch.arange(source, source + length) for source, length in layout.runs])


def losses_of(model: TinyTransformer, batch: dict[str, Any], layout: cpshard.ShardLayout,
              mesh: Any, tokens: int) -> torch.Tensor:
    """This rank's part of the loss: the parts of all ranks add up to it.

    Two terms: the mean over the batch's `tokens` labels, each counted where its token is; and one
    that needs whole rows, as RL objectives do, on log-probs that are gathered with gradient.
    """
    columns = columns_of(layout)

    def gather(tensor: torch.Tensor) -> torch.Tensor:
        # Every rank's loss uses the keys of all ranks: its gradients are summed.
        return cpshard.torch.gather_token_tensor(layout, mesh, tensor, gradient="sum")

    logits = model(batch["input_ids"], batch["position_ids"], columns, gather)
    labels = batch["labels"]
    log_probs = -functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none",
                                          ignore_index=IGNORED).view_as(labels)  # [B, L]
    per_token = -log_probs.sum() / tokens

    # Every rank computes the same from the full rows: its own slice of the gradient is its part.
    rows = cpshard.torch.gather_token_tensor(layout, mesh, log_probs, trim=True, gradient="slice")
    counted = cpshard.torch.gather_token_tensor(layout, mesh, labels, trim=True) != IGNORED
    row_means = rows.sum(1) / counted.sum(1)  # [B]
    per_row = row_means.square().mean()
    return per_token + 0.1 * (per_row if dist.get_rank() == 0 else per_row - per_row.detach())


def train(steps: int, checkpoint: pathlib.Path | None, kill_at: int | None) -> None:
    """A trainer's process, one of WORLD_SIZE."""
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    mesh = dist.device_mesh.init_device_mesh("cpu", (world,), mesh_dim_names=("cp",))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = TinyTransformer(VOCABULARY)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    saved = None
    if checkpoint is not None and (checkpoint / "last.pt").exists():
        saved = torch.load(checkpoint / "last.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    # The whole mesh, not its axis: the other axes of a larger one tell its groups apart.
    loop = cpshard.rank(options=OPTIONS, mesh=mesh, tensors="torch",
                        state=saved and saved["data"])
    with loop:
        for batch, layout in loop:
            step = loop.current()
            if step.step == kill_at:
                os.abort()
            loss = losses_of(model, batch, layout, mesh["cp"], step.totals.num_label_tokens)
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total)
            if dist.get_rank() == 0:
                print(f"step {step.step:3d}  tokens {step.totals.num_label_tokens:4d}  "
                      f"loss {total.item():.5f}  gradient {norm.item():.5f}", flush=True)
                if checkpoint is not None:
                    save(checkpoint, {"model": model.state_dict(), "data": loop.state(),
                                      "optimizer": optimizer.state_dict()})
    dist.destroy_process_group()


def save(folder: pathlib.Path, state: dict[str, Any]) -> None:
    """All of it or nothing: a process may die in the middle."""
    torch.save(state, folder / "next.pt")
    os.replace(folder / "next.pt", folder / "last.pt")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cp", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--checkpoint", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--kill-at", type=int, metavar="STEP")
    parser.add_argument("--role", choices=["train", "load"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role == "load":
        load(args.steps)
    elif args.role == "train":
        train(args.steps, args.checkpoint, args.kill_at)
    else:
        if args.checkpoint is not None:
            args.checkpoint.mkdir(parents=True, exist_ok=True)
        return run_job([sys.executable, __file__, *sys.argv[1:]], args.cp)
    return 0


if __name__ == "__main__":
    sys.exit(main())
