// Batches of packed documents for the plan tests: a spec, and the values that a plan reads of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/layouts.h"
#include "core/plan/packed_lengths.h"
#include "tests/plan/specs.h"

namespace cpshard {

inline constexpr int64_t kUnused = -1000;  // the sentinel as the contract states it (section 1)

// `values` as elements of an integer dtype or bool, one after the other.
inline std::vector<std::byte> BytesOf(DType dtype, const std::vector<int64_t>& values) {
  const int64_t item = ItemSize(dtype);
  std::vector<std::byte> bytes(values.size() * item);
  for (size_t i = 0; i < values.size(); ++i) {
    std::memcpy(bytes.data() + i * item, &values[i], item);  // little endian
  }
  return bytes;
}

class PackedBatch {
 public:
  using Rows = std::vector<std::vector<int64_t>>;

  // input_ids, labels and position_ids, i64 [rows, length], and no lengths; cp_size 2.
  PackedBatch(int64_t rows, int64_t length)
      : spec_(TokenBatch(rows, length, {{"position_ids", DType::kI64, {rows, length}}})) {}

  PackedBatch& Cp(std::optional<int64_t> cp_size) {
    spec_.cp_size = cp_size;
    return *this;
  }
  // A tensor in the place of the entry of that name, if there is one.
  PackedBatch& Set(TensorSpec tensor, std::vector<int64_t> values = {}) {
    std::erase_if(spec_.scalars, [&](const ScalarEntry& e) { return e.name == tensor.name; });
    values_[tensor.name] = BytesOf(tensor.dtype, values);
    spec_ = With(std::move(spec_), std::move(tensor));
    return *this;
  }
  PackedBatch& SetScalar(const std::string& name, Scalar value) {
    spec_ = Without(std::move(spec_), name);
    spec_.scalars.push_back({name, std::move(value)});
    return *this;
  }
  PackedBatch& Remove(const std::string& name) {
    spec_ = Without(std::move(spec_), name);
    return *this;
  }
  // Lengths of documents, [rows, n]; shorter rows are filled up with the sentinel.
  PackedBatch& Lengths(const std::string& name, const Rows& rows, DType dtype = DType::kI64) {
    size_t width = 0;
    for (const auto& row : rows) width = std::max(width, row.size());
    std::vector<int64_t> flat;
    for (std::vector<int64_t> row : rows) {
      row.resize(width, kUnused);
      flat.insert(flat.end(), row.begin(), row.end());
    }
    return Set({name, dtype, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)}},
               std::move(flat));
  }
  PackedBatch& Real(const Rows& rows) { return Lengths("seq_lens", rows); }
  PackedBatch& Padded(const Rows& rows) { return Lengths("seq_lens_padded", rows); }

  const BatchSpec& spec() const { return spec_; }

  // The values of some streams; valid while the object is.
  PlanValues Values(const std::vector<std::string>& names) const {
    PlanValues values;
    for (const std::string& name : names) {
      const TensorSpec* tensor = spec_.FindTensor(name);
      if (tensor == nullptr || !values_.contains(name)) {
        ADD_FAILURE() << "the values of '" << name << "' are needed";
        continue;
      }
      values.emplace(name, ValueView(tensor->dtype, tensor->dims, values_.at(name).data()));
    }
    return values;
  }

  absl::StatusOr<ShardPlan> PlanBy(const Sharder& sharder) const {
    return sharder.Plan(spec_, Values(sharder.Needs(spec_)));
  }

 private:
  BatchSpec spec_;
  std::map<std::string, std::vector<std::byte>> values_;
};

// The lengths that a batch states.
inline PackedLengths LengthsOf(const BatchSpec& spec, const PlanValues& values) {
  const TokenRows rows = RowsOf(*spec.FindTensor("input_ids")).value();
  return PackedLengths::Of(spec, values, rows).value();
}

}  // namespace cpshard
