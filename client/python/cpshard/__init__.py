"""Batch sharding for context-parallel training, from the trainer's side.

    client = cpshard.connect("host:7070")
    shards = client.shard({"input_ids": ids, "labels": labels}, {"round_robin": {}}, cp_size=4)

    with cpshard.rank("host:7070", options={"round_robin": {}}, cp_size=4) as loop:
        for batch, layout in loop:                                 # a rank's data loop
            ...
    with cpshard.loader(dataloader, "host:7070") as loader:        # what feeds it
        loader.wait()

cpshard.embedded plans and shards without a server; cpshard.torch has the verbs of trainers.
"""

from __future__ import annotations

from typing import Any

from .client import Client, Plan, ServerInfo, connect
from .errors import Error
from .messages import Totals
from .options import Options
from .session.loop import Step
from .session.messages import StepTotals
from .session.rank import RankStream
from .session.source import SourceStep, StepSource
from .topology import Topology, topology
from .trainer import loader, rank
from .types import Batch, Cut, Notice, RankLoad, Shard, ShardLayout, TokenCounts

__all__ = ["Batch", "Client", "Cut", "Error", "Notice", "Options", "Plan", "RankLoad", "RankStream",
           "ServerInfo", "Shard", "ShardLayout", "SourceStep", "Step", "StepSource", "StepTotals",
           "TokenCounts", "Topology", "Totals", "connect", "loader", "rank", "topology", "verify"]


def __getattr__(name: str) -> Any:
    # Needs a native object, which who talks to a server need not have.
    if name == "verify":
        from .verifying import verify
        return verify
    raise AttributeError(f"module 'cpshard' has no attribute '{name}'")
