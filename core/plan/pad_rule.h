// What a layout pads, and to what: asked before documents are packed, so that a packer can count
// the padding in.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/plan/plan.h"
#include "core/plan/spec.h"

namespace cpshard {

// Of one row that is packed with documents. Multiples are 1 where nothing is padded; a term says
// what sets them ("2 * cp_size = 8"), empty where they are 1.
struct PadRule {
  int64_t document_multiple = 1;  // the layout pads documents to it, or asks the caller to
  std::string document_term;
  int64_t row_multiple = 1;
  std::string row_term;
  int64_t row_minimum = 0;       // the row has no fewer columns
  std::optional<Choice> choice;  // of options that name a model
};

// The rule for a row of `tokens` tokens. Of `spec` cp_size counts; where the layout is chosen by
// the batch, its entries too, and without entries a packed row of that many tokens is meant.
// InvalidArgument: a multiple beyond int64, or a row that the layout cannot take.
using PadRuleFn = std::function<absl::StatusOr<PadRule>(const BatchSpec& spec, int64_t tokens)>;

// Rows are padded to multiples of factor * cp_size; `term` is that in words.
PadRuleFn PadRows(absl::string_view term, int64_t factor);

// Documents must be multiples of 2 * cp_size, and so are rows; one rank needs no padding.
PadRuleFn PadHeadAndTail();

// "pad_multiple = 8" of a term and its number.
std::string PadTerm(absl::string_view term, int64_t multiple);

// What documents of some lengths cost that are packed into one row.
struct PadCosts {
  PadRule rule;
  std::vector<int64_t> padded;  // one per document
  int64_t row = 0;              // columns of the padded row
};

// InvalidArgument, naming the document: a length below 0; a sum beyond int64.
absl::StatusOr<int64_t> SumOfLengths(absl::Span<const int64_t> lengths);

// Precondition: SumOfLengths passed. InvalidArgument: what is padded is beyond int64.
absl::StatusOr<PadCosts> PadCostsOf(PadRule rule, absl::Span<const int64_t> lengths);

}  // namespace cpshard
