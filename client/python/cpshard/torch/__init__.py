"""cpshard for trainers on torch: the reference's sharder module, name by name.

    sharder = cpshard.torch.ContextParallelSharder(model, device_mesh, batch)
    context, batch = sharder.shard(batch)
    with context():
        log_probs = model(**batch)                                # [B, L]
    full = sharder.gather_token_tensor(log_probs, trim=True)      # [B, S], differentiable

Batches are sharded by cpshard's library in this process (`cpshard.embedded`); token verbs and
gathers are operators of libcpshard_torch.so, which is built against the installed torch.
"""

from ..types import ShardLayout
from . import deepseek_v41
from .any_layout import shard_batch_by
from .deepseek_v41 import gather_sequence, shard_cp_batch
from .facts import facts_of
from .index_maps import (contiguous_local_indices, identity_local_indices,
                         round_robin_local_indices)
from .layout_verbs import gather_token_tensor, shard_token_tensor, token_layout
from .magi import shard_batch_magi
from .records import assemble
from .shard_batch import (convert_attention_mask_to_padding_mask, shard_batch_aux_only,
                          shard_batch_contiguous, shard_batch_identity,
                          shard_batch_load_balanced)
from .sharder import ContextParallelSharder
from .thd import shard_batch_thd
from .token_layout import TokenLayout
from .token_verbs import (gather_token_tensor_by_indices, shard_sequence_for_cp_contiguous,
                          shard_sequence_for_cp_round_robin, shard_token_tensor_by_indices,
                          unshard_context_parallel_tensor)

__all__ = [
    "ContextParallelSharder", "ShardLayout", "TokenLayout", "assemble",
    "contiguous_local_indices", "convert_attention_mask_to_padding_mask", "deepseek_v41",
    "facts_of", "gather_sequence", "gather_token_tensor", "gather_token_tensor_by_indices",
    "identity_local_indices", "round_robin_local_indices", "shard_batch_aux_only",
    "shard_batch_by", "shard_batch_contiguous", "shard_batch_identity",
    "shard_batch_load_balanced", "shard_batch_magi", "shard_batch_thd", "shard_cp_batch",
    "shard_sequence_for_cp_contiguous", "shard_sequence_for_cp_round_robin",
    "shard_token_tensor", "shard_token_tensor_by_indices", "token_layout",
    "unshard_context_parallel_tensor",
]
