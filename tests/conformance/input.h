// A case of the corpus, split in two as soon as it is read: what the product is given, and what it
// must answer. The second half stays sealed until there is an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tests/conformance/answer.h"
#include "tests/conformance/json.h"

namespace cpshard::conformance {

// All that a run sees of a case.
struct Input {
  std::string id;
  std::string backend;
  std::optional<int64_t> cp_size;  // absent = no mesh
  std::optional<int64_t> dp_size;  // data-parallel replicas, each with a batch and ranks of its own
  Json args;                       // object; `product.expect.args` laid over it
  Json batch;                      // object
  std::optional<Json> loss_mask_arg;
};

// `ranks` and `product` of a case. Nobody can look inside without an answer to compare them with.
class SealedExpectation {
 public:
  SealedExpectation(Json ranks, Json product)
      : ranks_(std::move(ranks)), product_(std::move(product)) {}

  const Json& ranks(const Answer&) const { return ranks_; }
  const Json& product(const Answer&) const { return product_; }

 private:
  Json ranks_;
  Json product_;
};

struct Case {
  Input input;
  SealedExpectation expectation;
  std::string skip;        // why the corpus itself says that no runner can drive it; empty = it can
  bool words = false;      // described in title and args; the values are no inputs
  bool comparable = true;  // the corpus says what the product must answer
};

// InvalidArgument, naming the field: one of id, backend, cp_size, args, batch is missing or has
// another type, or another one is there. `ranks` and `product` are not looked at, but for
// `expect.args` (an input) and `expect: null` (nothing to compare).
absl::StatusOr<Case> SplitCase(Json json);

}  // namespace cpshard::conformance
