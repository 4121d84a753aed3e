#include "core/torch/streams.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstring>
#include <memory>
#include <utility>

#include "core/exec/executor.h"
#include "core/torch/shapes.h"

namespace cpshard {
namespace {

// Copies look at the width of an element, and nothing here computes with one.
DType DTypeOf(const at::Tensor& stream, size_t i) {
  switch (stream.element_size()) {
    case 1:
      return DType::kU8;
    case 2:
      return DType::kI16;
    case 4:
      return DType::kI32;
    case 8:
      return DType::kI64;
  }
  TORCH_CHECK_TYPE(false, "stream ", i, " is ", stream.scalar_type(), "; no batch has that");
}

// The value as torch.full gives it, errors too.
Element FillOf(const at::Scalar& fill, const at::Tensor& stream) {
  const at::Tensor one = at::full({1}, fill, stream.options());
  Element element;
  std::memcpy(&element.bits, one.const_data_ptr(), one.element_size());
  return element;
}

struct StreamRuns {
  std::shared_ptr<const std::vector<Moves>> moves;
  int64_t slots = 0;    // of the shard
  int64_t columns = 0;  // a stream has these at least
};

StreamRuns ReadRuns(const at::Tensor& runs) {
  TORCH_CHECK_TYPE(runs.scalar_type() == at::kLong && runs.is_cpu(), "runs are ",
                   runs.scalar_type(), " on ", runs.device(), "; they must be int64 on the CPU");
  TORCH_CHECK_VALUE(runs.dim() == 2 && runs.size(1) == 2, "runs have shape ", runs.sizes(),
                    "; it must be [n, 2]");
  const at::Tensor rows = runs.contiguous();
  const int64_t* row = rows.const_data_ptr<int64_t>();
  StreamRuns read;
  Moves moves;
  for (int64_t i = 0; i < rows.size(0); ++i, row += 2) {
    int64_t end = 0;
    const bool sound = row[0] >= kFill && row[1] >= 0 &&
                       !__builtin_add_overflow(row[0], row[1], &end) &&
                       !__builtin_add_overflow(read.slots, row[1], &read.slots);
    TORCH_CHECK_VALUE(sound, "run ", i, " {", row[0], ", ", row[1],
                      "} is neither {source column >= 0, length} nor {-1, length}");
    if (row[1] == 0) continue;
    Move move;
    move.kind = row[0] == kFill ? Move::Kind::kFill : Move::Kind::kCopy;
    move.from = row[0] == kFill ? 0 : row[0];
    move.to = read.slots - row[1];
    move.length = row[1];
    moves.push_back(move);
    if (row[0] != kFill) read.columns = std::max(read.columns, end);
  }
  read.moves = std::make_shared<const std::vector<Moves>>(1, std::move(moves));
  return read;
}

void CheckStream(const at::Tensor& stream, size_t i, int64_t dim, const StreamRuns& runs) {
  TORCH_CHECK_VALUE(stream.is_cpu(), "stream ", i, " is on ", stream.device(),
                    "; shard_token_tensor cuts one on a device");
  TORCH_CHECK_VALUE(!(stream.requires_grad() && at::GradMode::is_enabled()), "stream ", i,
                    " requires grad; shard_token_tensor cuts it with its gradient");
  TORCH_CHECK_VALUE(stream.size(dim) >= runs.columns, "stream ", i, " of shape ", stream.sizes(),
                    " has ", stream.size(dim), " columns on axis ", dim, ", the runs read ",
                    runs.columns);
}

CutTask TaskOf(const at::Tensor& stream, size_t i, int64_t dim, const StreamRuns& runs,
               const at::Scalar& fill, at::Tensor& shard) {
  const at::IntArrayRef sizes = stream.sizes();
  CutTask task;
  task.column_bytes = ProductOf(sizes.slice(dim + 1)) * stream.element_size();
  task.outer = ProductOf(sizes.slice(0, dim));
  task.source = static_cast<const std::byte*>(stream.const_data_ptr());
  task.source_stride = sizes[dim] * task.column_bytes;
  task.dtype = DTypeOf(stream, i);
  task.fill = FillOf(fill, stream);
  task.moves = runs.moves;
  task.dests = {static_cast<std::byte*>(shard.mutable_data_ptr())};
  task.dest_strides = {runs.slots * task.column_bytes};
  return task;
}

}  // namespace

std::vector<at::Tensor> ShardStreams(at::TensorList streams, const at::Tensor& runs,
                                     at::IntArrayRef seq_dims, c10::ArrayRef<at::Scalar> fills) {
  TORCH_CHECK_VALUE(streams.size() == seq_dims.size() && streams.size() == fills.size(),
                    streams.size(), " streams, ", seq_dims.size(), " seq_dims and ", fills.size(),
                    " fills; there must be one of each a stream");
  const StreamRuns read = ReadRuns(runs);
  std::vector<at::Tensor> sources, shards;
  std::vector<Task> tasks;
  for (size_t i = 0; i < streams.size(); ++i) {
    const int64_t dim = at::maybe_wrap_dim(seq_dims[i], streams[i].dim(), /*wrap_scalar=*/false);
    CheckStream(streams[i], i, dim, read);
    sources.push_back(streams[i].detach().resolve_conj().resolve_neg().contiguous());
    shards.push_back(
        at::empty(WithLength(sources.back().sizes(), dim, read.slots), sources.back().options()));
    CutTask task = TaskOf(sources.back(), i, dim, read, fills[i], shards.back());
    if (task.outer > 0 && task.column_bytes > 0) tasks.emplace_back(std::move(task));
  }
  const absl::Status status = MakeCpuExecutor()->Run(tasks);
  TORCH_CHECK(status.ok(), status.message());
  return shards;
}

}  // namespace cpshard
