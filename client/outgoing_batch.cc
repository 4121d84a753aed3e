#include "client/outgoing_batch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "proto/frames.h"

namespace cpshard {
namespace {

constexpr int64_t kAlignment = 64;  // of tensors and of the ends of bodies

// Only what no server can take: how much is too much is the server's to say.
absl::Status CheckBatch(const Batch& batch, const BatchSpec& spec) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max() / 2;
  CPSHARD_RETURN_IF_ERROR(ValidateSpec(spec, {.max_tensors = kAny,
                                              .max_dims = kAny,
                                              .max_name_bytes = kAny,
                                              .max_ranks = kAny,
                                              .max_batch_bytes = kAny}));
  for (const Tensor& tensor : batch.tensors) {
    const int64_t nbytes = NumBytes(tensor.spec);
    if (static_cast<int64_t>(tensor.buffer.size()) == nbytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("stream '", tensor.spec.name, "': ", DimsString(tensor.spec.dims), " of ",
                     DTypeName(tensor.spec.dtype), " takes ", nbytes, " bytes; its buffer has ",
                     tensor.buffer.size()));
  }
  return absl::OkStatus();
}

// Options that this build cannot make are the server's to refuse.
std::vector<std::string> StreamsThatAreRead(const Options& options, const BatchSpec& spec) {
  const absl::StatusOr<Sharder> sharder = options.MakeSharder();
  return sharder.ok() ? sharder->Needs(spec) : std::vector<std::string>();
}

int64_t EndOf(const std::vector<TensorPlace>& places) {
  int64_t end = 0;
  for (const TensorPlace& place : places) {
    if (place.nbytes > 0) end = std::max(end, place.offset + place.nbytes);
  }
  return (end + kAlignment - 1) / kAlignment * kAlignment;
}

// Gives the batch its places; `read` names the streams that come first.
absl::Status Place(const Batch& batch, BatchBegin* begin,
                   absl::FunctionRef<std::vector<std::string>(const BatchSpec&)> read) {
  begin->spec = SpecOf(batch, begin->cp_size);
  CPSHARD_RETURN_IF_ERROR(CheckBatch(batch, begin->spec));
  begin->places = PlaceTensors(begin->spec, read(begin->spec));
  begin->total_bytes = EndOf(begin->places);
  return absl::OkStatus();
}

OutgoingBatch Pieces(Batch batch, const BatchBegin& begin, std::string head) {
  OutgoingBatch out;
  out.begin = std::move(head);
  out.total_bytes = begin.total_bytes;
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    Buffer& bytes = batch.tensors[i].buffer;
    if (bytes.size() > 0) out.pieces.push_back({begin.places[i].offset, std::move(bytes)});
  }
  std::sort(out.pieces.begin(), out.pieces.end(),
            [](const auto& a, const auto& b) { return a.offset < b.offset; });
  return out;
}

Buffer Zeros(int64_t size) {
  alignas(kAlignment) static std::byte zeros[kAlignment] = {};
  return Buffer(nullptr, zeros, static_cast<size_t>(std::min(size, kAlignment)));
}

}  // namespace

absl::StatusOr<OutgoingBatch> LayOutBatch(Batch batch, const Options& options,
                                          std::optional<int64_t> cp_size,
                                          std::vector<int64_t> ranks, ExecutorKind executor) {
  BatchBegin begin;
  begin.executor = executor;
  begin.options = options;
  begin.cp_size = cp_size;
  begin.ranks = std::move(ranks);
  CPSHARD_RETURN_IF_ERROR(Place(
      batch, &begin, [&](const BatchSpec& spec) { return StreamsThatAreRead(options, spec); }));
  CPSHARD_ASSIGN_OR_RETURN(std::string head, EncodeBatchBegin(begin));
  OutgoingBatch out = Pieces(std::move(batch), begin, std::move(head));
  out.expected = {begin.ranks, begin.spec.num_ranks(), executor};
  return out;
}

absl::StatusOr<OutgoingBatch> LayOutPushedBatch(Batch batch) {
  BatchBegin begin;
  CPSHARD_RETURN_IF_ERROR(
      Place(batch, &begin, [](const BatchSpec&) { return std::vector<std::string>(); }));
  CPSHARD_ASSIGN_OR_RETURN(std::string head, EncodePushedBegin(begin));
  return Pieces(std::move(batch), begin, std::move(head));
}

std::vector<Buffer> BodyOf(const OutgoingBatch& batch, int64_t offset, int64_t size) {
  const int64_t end = offset + size;
  std::vector<Buffer> body;
  const auto fill_up_to = [&](int64_t to) {
    while (offset < to) {
      body.push_back(Zeros(to - offset));
      offset += static_cast<int64_t>(body.back().size());
    }
  };
  auto piece = std::upper_bound(
      batch.pieces.begin(), batch.pieces.end(), offset, [](int64_t at, const auto& piece) {
        return at < piece.offset + static_cast<int64_t>(piece.bytes.size());
      });
  for (; offset < end && piece != batch.pieces.end() && piece->offset < end; ++piece) {
    fill_up_to(piece->offset);
    const int64_t skip = offset - piece->offset;
    const int64_t take = std::min(static_cast<int64_t>(piece->bytes.size()) - skip, end - offset);
    body.push_back(piece->bytes.Slice(skip, take));
    offset += take;
  }
  fill_up_to(end);
  return body;
}

}  // namespace cpshard
