#include "core/plan/spec.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cpshard {
namespace {

constexpr absl::string_view kReservedPrefixes[] = {"_cpshard.", "_meta.", "_layout."};

absl::Status CheckName(absl::string_view name, const Limits& limits) {
  if (name.empty()) return absl::InvalidArgumentError("an entry of the batch has an empty name");
  if (static_cast<int64_t>(name.size()) > limits.max_name_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("the name '", name.substr(0, 32), "...' has ",
                                                   name.size(), " bytes; the limit is ",
                                                   limits.max_name_bytes));
  }
  if (name.find('\0') != absl::string_view::npos) {  // it ends names in the digest
    return absl::InvalidArgumentError("the name of an entry holds a zero byte");
  }
  if (name == "__metadata__") {  // of safetensors files, which shards become
    return absl::InvalidArgumentError("the name '__metadata__' is reserved; rename the stream");
  }
  for (absl::string_view prefix : kReservedPrefixes) {
    if (absl::StartsWith(name, prefix)) {
      return absl::InvalidArgumentError(absl::StrCat("the name '", name, "' begins with '", prefix,
                                                     "', which is reserved; rename the stream"));
    }
  }
  return absl::OkStatus();
}

// Bytes of the tensor, or InvalidArgument.
absl::StatusOr<int64_t> CheckTensor(const TensorSpec& tensor, const Limits& limits) {
  if (static_cast<int64_t>(tensor.dims.size()) > limits.max_dims) {
    return absl::InvalidArgumentError(absl::StrCat("stream '", tensor.name, "' has ",
                                                   tensor.dims.size(), " axes; the limit is ",
                                                   limits.max_dims));
  }
  // The product skips zeros, so that a 0 cannot hide an overflow of the other dims.
  int64_t bytes = ItemSize(tensor.dtype);
  bool empty = false;
  for (int64_t dim : tensor.dims) {
    if (dim < 0) {
      return absl::InvalidArgumentError(absl::StrCat("stream '", tensor.name,
                                                     "' has a negative length in its shape ",
                                                     DimsString(tensor.dims)));
    }
    if (dim == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, dim, &bytes)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "stream '", tensor.name, "' of shape ", DimsString(tensor.dims), " and dtype ",
          DTypeName(tensor.dtype), " has more bytes than 64 bits can count"));
    }
  }
  return empty ? 0 : bytes;
}

}  // namespace

int64_t Product(absl::Span<const int64_t> dims) {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

int64_t NumElements(const TensorSpec& spec) { return Product(spec.dims); }

int64_t NumBytes(const TensorSpec& spec) { return NumElements(spec) * ItemSize(spec.dtype); }

std::string DimsString(absl::Span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

const TensorSpec* BatchSpec::FindTensor(absl::string_view name) const {
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

const Scalar* BatchSpec::FindScalar(absl::string_view name) const {
  for (const ScalarEntry& entry : scalars) {
    if (entry.name == name) return &entry.value;
  }
  return nullptr;
}

bool BatchSpec::Has(absl::string_view name) const {
  return FindTensor(name) != nullptr || FindScalar(name) != nullptr;
}

absl::Status ValidateSpec(const BatchSpec& spec, const Limits& limits) {
  if (spec.cp_size && (*spec.cp_size < 1 || *spec.cp_size > limits.max_ranks)) {
    return absl::InvalidArgumentError(absl::StrCat("cp_size is ", *spec.cp_size,
                                                   "; it must be 1 ... ", limits.max_ranks,
                                                   ", or absent for a batch without a mesh"));
  }
  const int64_t entries = spec.tensors.size() + spec.scalars.size();
  if (entries > limits.max_tensors) {
    return absl::InvalidArgumentError(
        absl::StrCat("the batch has ", entries, " entries; the limit is ", limits.max_tensors));
  }
  std::set<absl::string_view> names;
  int64_t total = 0;
  const auto check_name = [&](absl::string_view name) -> absl::Status {
    if (absl::Status status = CheckName(name, limits); !status.ok()) return status;
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the batch has two entries named '", name, "'"));
    }
    return absl::OkStatus();
  };
  for (const TensorSpec& tensor : spec.tensors) {
    if (absl::Status status = check_name(tensor.name); !status.ok()) return status;
    absl::StatusOr<int64_t> bytes = CheckTensor(tensor, limits);
    if (!bytes.ok()) return bytes.status();
    if (*bytes > limits.max_batch_bytes - total) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the batch is over the limit of ", limits.max_batch_bytes, " bytes with stream '",
          tensor.name, "' of shape ", DimsString(tensor.dims), "; split it into smaller batches"));
    }
    total += *bytes;
  }
  for (const ScalarEntry& scalar : spec.scalars) {
    if (absl::Status status = check_name(scalar.name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> ResolveRanks(absl::Span<const int64_t> asked,
                                                  int64_t num_ranks) {
  std::vector<int64_t> ranks(asked.begin(), asked.end());
  if (ranks.empty()) {
    for (int64_t rank = 0; rank < num_ranks; ++rank) ranks.push_back(rank);
    return ranks;
  }
  std::set<int64_t> seen;
  for (int64_t rank : ranks) {
    if (rank < 0 || rank >= num_ranks) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank,
                                                     " was asked for, but there are ", num_ranks,
                                                     " ranks (0 ... ", num_ranks - 1, ")"));
    }
    if (!seen.insert(rank).second) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " was asked for twice"));
    }
  }
  return ranks;
}

}  // namespace cpshard
