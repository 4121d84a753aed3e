#include "core/torch/streams.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstring>
#include <memory>
#include <utility>

#include "core/exec/executor.h"
#include "core/torch/cuda_streams.h"
#include "core/torch/shapes.h"
#include "core/torch/stream_rows.h"

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
  TORCH_CHECK_TYPE(false, "stream ", i, " is ", stream.scalar_type(), ", of ",
                   stream.element_size(),
                   " bytes an element; streams of 1, 2, 4 and 8 are cut at "
                   "once, shard_token_tensor cuts one of others");
}

template <typename T>
Element ElementOf(const T& value) {
  Element element;
  std::memcpy(&element.bits, &value, sizeof(value));
  return element;
}

// The value as torch.full gives it, errors too: by the same conversion where a dtype is often met,
// for a tensor of one element costs as much as a stream.
Element FillOf(const at::Scalar& fill, const at::Tensor& stream) {
  switch (stream.scalar_type()) {
    case at::kBool:
      return ElementOf(fill.to<bool>());
    case at::kByte:
      return ElementOf(fill.to<uint8_t>());
    case at::kInt:
      return ElementOf(fill.to<int32_t>());
    case at::kLong:
      return ElementOf(fill.to<int64_t>());
    case at::kFloat:
      return ElementOf(fill.to<float>());
    default:
      break;
  }
  const at::Tensor one = at::full({1}, fill, stream.options().device(at::kCPU));
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

// Its memory has its values: torch may have put off conjugating or negating them.
at::Tensor AsItLies(const at::Tensor& stream) {
  return stream.is_conj() || stream.is_neg() ? stream.resolve_conj().resolve_neg() : stream;
}

void CheckStream(const at::Tensor& stream, size_t i, int64_t dim, const StreamRuns& runs) {
  TORCH_CHECK_VALUE(!(stream.requires_grad() && at::GradMode::is_enabled()), "stream ", i,
                    " requires grad; shard_token_tensor cuts it with its gradient");
  TORCH_CHECK_VALUE(stream.size(dim) >= runs.columns, "stream ", i, " of shape ", stream.sizes(),
                    " has ", stream.size(dim), " columns on axis ", dim, ", the runs read ",
                    runs.columns);
}

// Of a stream with rows on end: a task for each block of them.
void AddTasks(const at::Tensor& stream, size_t i, int64_t dim, const StreamRuns& runs,
              const at::Scalar& fill, at::Tensor& shard, std::vector<Task>& tasks) {
  CutTask task;
  const int64_t item = static_cast<int64_t>(stream.element_size());
  task.column_bytes = ProductOf(stream.sizes().slice(dim + 1)) * item;
  task.dtype = DTypeOf(stream, i);
  task.fill = FillOf(fill, stream);
  if (shard.numel() == 0) return;
  task.moves = runs.moves;
  task.dest_strides = {runs.slots * task.column_bytes};
  const auto* source = static_cast<const std::byte*>(stream.const_data_ptr());
  auto* dest = static_cast<std::byte*>(shard.mutable_data_ptr());
  for (const RowBlock& rows : RowBlocksOf(stream, dim)) {
    task.outer = rows.count;
    task.source = source + rows.offset * item;
    task.source_stride = rows.stride * item;
    task.dests = {dest + rows.first * task.dest_strides[0]};
    tasks.emplace_back(task);
  }
}

// The one device of all streams; the CPU of none.
at::Device DeviceOf(at::TensorList streams) {
  if (streams.empty()) return at::kCPU;
  const at::Device device = streams[0].device();
  TORCH_CHECK_VALUE(device.is_cpu() || device.is_cuda(), "stream 0 is on ", device,
                    "; streams are cut on the CPU and on CUDA devices, shard_token_tensor cuts one "
                    "elsewhere");
  for (size_t i = 1; i < streams.size(); ++i) {
    TORCH_CHECK_VALUE(streams[i].device() == device, "stream 0 is on ", device, ", stream ", i,
                      " on ", streams[i].device(), "; streams of one device are cut at once");
  }
  return device;
}

void Check(const absl::Status& status) {
  if (status.ok()) return;
  const std::string text(status.message());
  TORCH_CHECK_NOT_IMPLEMENTED(!absl::IsUnimplemented(status), text,
                              "; shard_token_tensor cuts a stream on a device without it");
  TORCH_CHECK_VALUE(!absl::IsInvalidArgument(status), text);
  TORCH_CHECK_WITH(OutOfMemoryError, !absl::IsResourceExhausted(status), text);
  TORCH_CHECK(false, text);
}

absl::Status RunWhereTheyAre(at::Device device, absl::Span<const Task> tasks) {
  return device.is_cpu() ? MakeCpuExecutor()->Run(tasks) : RunOnCurrentStream(device, tasks);
}

}  // namespace

std::vector<at::Tensor> ShardStreams(at::TensorList streams, const at::Tensor& runs,
                                     at::IntArrayRef seq_dims, c10::ArrayRef<at::Scalar> fills) {
  return ShardStreamsBy(RunWhereTheyAre, streams, runs, seq_dims, fills);
}

// What goes out of sight here, copies of streams, may go before a device is done with it: its
// memory is of the current stream, and torch gives it to what comes behind on that stream alone. (A
// stream of the batch that was made on another one is the caller's to keep, as for any operator.)
std::vector<at::Tensor> ShardStreamsBy(const RunTasks& run, at::TensorList streams,
                                       const at::Tensor& runs, at::IntArrayRef seq_dims,
                                       c10::ArrayRef<at::Scalar> fills) {
  TORCH_CHECK_VALUE(streams.size() == seq_dims.size() && streams.size() == fills.size(),
                    streams.size(), " streams, ", seq_dims.size(), " seq_dims and ", fills.size(),
                    " fills; there must be one of each a stream");
  const StreamRuns read = ReadRuns(runs);
  const at::Device device = DeviceOf(streams);
  std::vector<at::Tensor> sources, shards;
  std::vector<Task> tasks;
  for (size_t i = 0; i < streams.size(); ++i) {
    const int64_t dim = at::maybe_wrap_dim(seq_dims[i], streams[i].dim(), /*wrap_scalar=*/false);
    CheckStream(streams[i], i, dim, read);
    sources.push_back(WithRowsOnEnd(AsItLies(streams[i]), dim));
    shards.push_back(
        at::empty(WithLength(streams[i].sizes(), dim, read.slots), streams[i].options()));
    AddTasks(sources.back(), i, dim, read, fills[i], shards.back(), tasks);
  }
  if (!tasks.empty()) Check(run(device, tasks));
  return shards;
}

}  // namespace cpshard
