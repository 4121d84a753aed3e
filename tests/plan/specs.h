// Short forms for the plan tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/plan/layouts.h"
#include "core/plan/plan.h"

namespace cpshard {

// input_ids and labels, i64 [rows, length], then `more`; cp_size 2 unless said otherwise.
inline BatchSpec TokenBatch(int64_t rows, int64_t length, std::vector<TensorSpec> more = {}) {
  BatchSpec spec;
  spec.cp_size = 2;
  spec.tensors = {{"input_ids", DType::kI64, {rows, length}},
                  {"labels", DType::kI64, {rows, length}}};
  for (TensorSpec& tensor : more) spec.tensors.push_back(std::move(tensor));
  return spec;
}

// `spec` with one tensor replaced, or added at the end.
inline BatchSpec With(BatchSpec spec, TensorSpec tensor) {
  for (TensorSpec& old : spec.tensors) {
    if (old.name == tensor.name) {
      old = std::move(tensor);
      return spec;
    }
  }
  spec.tensors.push_back(std::move(tensor));
  return spec;
}

inline BatchSpec Without(BatchSpec spec, const std::string& name) {
  std::erase_if(spec.tensors, [&](const TensorSpec& tensor) { return tensor.name == name; });
  return spec;
}

// A view of `values`, which must outlive it.
inline ValueView IntsOf(std::vector<int64_t> dims, const std::vector<int64_t>& values) {
  return ValueView(DType::kI64, std::move(dims), reinterpret_cast<const std::byte*>(values.data()));
}

// The plan of a batch that must not be refused.
inline ShardPlan PlanOf(const Sharder& sharder, const BatchSpec& spec,
                        const PlanValues& values = {}) {
  absl::StatusOr<ShardPlan> plan = sharder.Plan(spec, values);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : ShardPlan();
}

// The stream called `name`; fails where there is none.
inline StreamPlan StreamOf(const ShardPlan& plan, const std::string& name) {
  for (const StreamPlan& stream : plan.streams) {
    if (stream.name == name) return stream;
  }
  ADD_FAILURE() << "no stream '" << name << "' in\n" << ToString(plan);
  return {};
}

inline bool HasStream(const ShardPlan& plan, const std::string& name) {
  for (const StreamPlan& stream : plan.streams) {
    if (stream.name == name) return true;
  }
  return false;
}

// InvalidArgument, with every part in its message.
inline void ExpectRefused(const Sharder& sharder, const BatchSpec& spec,
                          const std::vector<std::string>& parts) {
  const absl::StatusOr<ShardPlan> plan = sharder.Plan(spec, {});
  ASSERT_FALSE(plan.ok()) << ToString(*plan);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << plan.status();
  for (const std::string& part : parts) {
    EXPECT_THAT(std::string(plan.status().message()), testing::HasSubstr(part));
  }
}

}  // namespace cpshard
