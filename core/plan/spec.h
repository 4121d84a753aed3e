// What a plan may know of a batch before its bytes: names, dtypes, shapes, scalars - and the values
// of the few streams that a layout asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/plan/dtype.h"

namespace cpshard {

// A dense, row-major tensor without its bytes.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kI64;
  std::vector<int64_t> dims;  // [B, S, ...] for a token-aligned stream; {} is a 0-d tensor
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// Of all dims; 1 when there are none.
int64_t Product(absl::Span<const int64_t> dims);

// Elements and bytes. Precondition: ValidateSpec passed (no overflow).
int64_t NumElements(const TensorSpec& spec);
int64_t NumBytes(const TensorSpec& spec);

// "[2, 8190]"
std::string DimsString(absl::Span<const int64_t> dims);

// A non-tensor entry (qkv_format, ...). It is never sharded.
using Scalar = std::variant<bool, int64_t, double, std::string>;

struct ScalarEntry {
  std::string name;
  Scalar value;
  friend bool operator==(const ScalarEntry&, const ScalarEntry&) = default;
};

// A batch as a plan sees it. Tensors and scalars share one namespace; absent and null are one thing
// (contract D8). `cp_size` absent = no mesh; 1 = a mesh of one rank (contract section 1).
struct BatchSpec {
  std::vector<TensorSpec> tensors;
  std::vector<ScalarEntry> scalars;
  std::optional<int64_t> cp_size;

  const TensorSpec* FindTensor(absl::string_view name) const;  // nullptr when absent
  const Scalar* FindScalar(absl::string_view name) const;      // nullptr when absent
  bool Has(absl::string_view name) const;

  // Ranks that get a shard: cp_size, or 1 without a mesh.
  int64_t num_ranks() const { return cp_size.value_or(1); }
};

// Checked before anything is allocated.
struct Limits {
  int64_t max_tensors = 256;  // entries: tensors and scalars
  int64_t max_dims = 8;
  int64_t max_name_bytes = 128;
  int64_t max_ranks = 4096;
  int64_t max_batch_bytes = int64_t{2} << 30;  // of a batch, and of all shards asked for
  friend bool operator==(const Limits&, const Limits&) = default;
};

// InvalidArgument, naming the stream and the numbers: a count, rank, name or size over the limits;
// a negative dim; a size beyond int64; a name that is empty, is used twice, holds a zero
// byte or begins with `_cpshard.`, `_meta.` or `_layout.`; cp_size < 1 or over the limit.
absl::Status ValidateSpec(const BatchSpec& spec, const Limits& limits);

// The ranks that a request names; none named = all of them, ascending.
// InvalidArgument: a rank >= num_ranks or < 0, a rank named twice.
absl::StatusOr<std::vector<int64_t>> ResolveRanks(absl::Span<const int64_t> asked,
                                                  int64_t num_ranks);

}  // namespace cpshard
