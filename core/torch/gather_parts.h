// What the gather and its gradient have in common.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "core/torch/gather.h"
#include "core/torch/moves.h"

namespace cpshard {

// Slots of the longest rank, of all ranks, and of this one; the latter checks that the map is one
// of this group.
int64_t Width(const TokenGather& gather);
int64_t AllSlots(const TokenGather& gather);
int64_t OwnSlots(const TokenGather& gather);

// TypeError unless the tensor's elements lie in memory that can be moved as it is.
void CheckStrided(const at::Tensor& tensor, const char* what);

// ValueError unless `tensor`, called `what`, is `length` long on the axis and goes with the order,
// and on the CPU the order with the moves. TypeError: as CheckStrided.
void CheckTensor(const at::Tensor& tensor, const TokenGather& gather, int64_t length,
                 const char* what);

// Of a shard or of the full tensor.
ShardGeometry GeometryOf(const at::Tensor& tensor, const TokenGather& gather);

// Whether nothing is in the full tensor.
bool IsEmpty(const ShardGeometry& geometry);

// Whether memory is moved by moves. Precondition: CheckTensor.
bool ByMoves(const at::Tensor& tensor, const TokenGather& gather, const ShardGeometry& geometry);

// The indices that pick [rank, slot] of each column out of [..., ranks, width, ...].
c10::List<std::optional<at::Tensor>> RankAndSlot(const TokenGather& gather, int64_t width);

}  // namespace cpshard
