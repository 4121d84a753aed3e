#include "tests/conformance/expectation.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "tests/conformance/values.h"

namespace cpshard::conformance {
namespace {

absl::Status Malformed(absl::string_view what) { return absl::InvalidArgumentError(what); }

absl::StatusOr<absl::StatusCode> CodeOf(const Json& name) {
  for (int code = 1; code <= 16; ++code) {
    const auto status_code = static_cast<absl::StatusCode>(code);
    if (name == absl::StatusCodeToString(status_code)) return status_code;
  }
  return Malformed(absl::StrCat("product.expect.error: unknown code ", Excerpt(name)));
}

// A list of integers, or a tensor of any integer dtype (the wire has one integer array).
absl::StatusOr<IntArray> IntArrayOf(absl::string_view name, const Json& json) {
  if (json.is_array()) {
    std::optional<std::vector<int64_t>> values = ReadInts(json);
    if (!values) return Malformed(absl::StrCat("layout.", name, " must hold integers"));
    const auto size = static_cast<int64_t>(values->size());
    return IntArray{{size}, *std::move(values)};
  }
  CPSHARD_ASSIGN_OR_RETURN(const Tensor tensor, DecodeTensor(name, json));
  if (IsFloating(tensor.spec.dtype)) {
    return Malformed(absl::StrCat("layout.", name, " must hold integers"));
  }
  const ValueView values = ViewValues(tensor);
  return IntArray{values.dims(), values.ToVector()};
}

absl::StatusOr<ShardLayout> LayoutOf(const Json& json) {
  ShardLayout layout;
  if (json.is_null()) return layout;
  if (!json.is_object()) return Malformed("field 'layout' must be an object or null");
  for (const auto& [name, value] : json.items()) {
    if (value.is_null()) continue;
    if (name == "original_seq_len" || name == "padded_seq_len") {
      const std::optional<int64_t> number = ReadInt64(value);
      if (!number) return Malformed(absl::StrCat("layout.", name, " must be an integer"));
      (name == "original_seq_len" ? layout.original_seq_len : layout.padded_seq_len) = number;
    } else if (name == "local_token_global_indices") {
      CPSHARD_ASSIGN_OR_RETURN(layout.local_token_global_indices, IntArrayOf(name, value));
    } else if (name == "input_row_shape") {
      CPSHARD_ASSIGN_OR_RETURN(layout.input_row_shape, IntArrayOf(name, value));
    } else if (name == "input_token_stream_positions") {
      CPSHARD_ASSIGN_OR_RETURN(layout.input_token_stream_positions, IntArrayOf(name, value));
    } else {
      return Malformed(absl::StrCat("layout.", name, ": no such field"));
    }
  }
  return layout;
}

// The reference lists the buffer that its context cut; here the mask is a stream (decision D2).
Json WithLossMask(const Json& outputs) {
  Json renamed = Json::object();
  for (const auto& [name, value] : outputs.items()) {
    renamed[name == "loss_mask(buffer)" ? "loss_mask" : name] = value;
  }
  return renamed;
}

// A member that nobody reads would be one that nobody compares.
absl::Status CheckMembers(const Json& object, absl::string_view where,
                          std::initializer_list<absl::string_view> known) {
  for (const auto& [name, value] : object.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return Malformed(absl::StrCat(where, "unknown field '", name, "'"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RankAnswer> RankOf(const Json& entry, int64_t rank) {
  const std::string where = absl::StrCat("rank ", rank, ": ");
  if (!entry.is_object()) return Malformed(absl::StrCat(where, "must be an object"));
  CPSHARD_RETURN_IF_ERROR(CheckMembers(
      entry, where, {"rank", "cp_rank", "dp_rank", "outputs", "layout", "state", "error"}));
  const Json* number = Find(entry, "rank");
  if (number == nullptr || *number != rank) {
    return Malformed(absl::StrCat(where, "field 'rank' is missing or another number"));
  }
  if (entry.contains("error")) {
    return Malformed(absl::StrCat(where, "the reference raises, and product names no error"));
  }
  const Json* outputs = Find(entry, "outputs");
  if (outputs == nullptr || !outputs->is_object()) {
    return Malformed(absl::StrCat(where, "field 'outputs' is missing"));
  }
  if (!entry.contains("layout")) return Malformed(absl::StrCat(where, "field 'layout' is missing"));
  RankAnswer answer;
  CPSHARD_ASSIGN_OR_RETURN(answer.batch, DecodeValues(WithLossMask(*outputs), {.rank = rank}));
  if (const Json* state = Find(entry, "state")) {
    CPSHARD_ASSIGN_OR_RETURN(answer.state, DecodeValues(*state, {.rank = rank}));
  }
  CPSHARD_ASSIGN_OR_RETURN(answer.layout, LayoutOf(entry["layout"]));
  return answer;
}

absl::StatusOr<Expectation> RanksOf(const Json& ranks, absl::string_view field) {
  if (!ranks.is_array() || ranks.empty()) {
    return Malformed(absl::StrCat("field '", field, "' is missing, or not a list of ranks"));
  }
  Expectation expectation;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    CPSHARD_ASSIGN_OR_RETURN(RankAnswer answer, RankOf(ranks[rank], static_cast<int64_t>(rank)));
    expectation.ranks.push_back(std::move(answer));
    expectation.lists_state |= Find(ranks[rank], "state") != nullptr;
  }
  return expectation;
}

// The ranks that a decision expects, each with the reference's state where it lists none: that a
// decision changes outputs or layout leaves the state as it was.
Json WithState(Json ranks, const Json& reference) {
  const bool same_ranks =
      ranks.is_array() && reference.is_array() && ranks.size() == reference.size();
  if (!same_ranks) return ranks;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Json* state = Find(reference[rank], "state");
    if (state == nullptr || !ranks[rank].is_object() || ranks[rank].contains("state")) continue;
    ranks[rank]["state"] = *state;
  }
  return ranks;
}

}  // namespace

absl::StatusOr<Expectation> Open(const SealedExpectation& sealed, const Answer& answer) {
  const Json& product = sealed.product(answer);
  const Json* same = Find(product, "same");
  if (same == nullptr || !same->is_boolean()) {
    return Malformed("field 'product' is missing, or has no bool 'same'");
  }
  CPSHARD_RETURN_IF_ERROR(
      CheckMembers(product, "product: ", {"same", "decision", "expect", "why"}));
  const bool has_expect = product.contains("expect");
  if (!has_expect) {
    if (*same == false) return Malformed("product differs from the reference, without 'expect'");
    return RanksOf(sealed.ranks(answer), "ranks");
  }
  const Json& expect = product["expect"];
  if (!expect.is_object()) return Malformed("product.expect must be an object");
  CPSHARD_RETURN_IF_ERROR(CheckMembers(
      expect, "product.expect: ", {"error", "why", "args", "ranks", "ranks_as_reference"}));
  if (const Json* error = Find(expect, "error")) {
    Expectation expectation;
    CPSHARD_ASSIGN_OR_RETURN(expectation.refusal, CodeOf(*error));
    return expectation;
  }
  if (const Json* ranks = Find(expect, "ranks")) {
    return RanksOf(WithState(*ranks, sealed.ranks(answer)), "product.expect.ranks");
  }
  const Json* as_reference = Find(expect, "ranks_as_reference");
  if (*same == true || (as_reference != nullptr && *as_reference == true)) {
    return RanksOf(sealed.ranks(answer), "ranks");
  }
  return Malformed("product.expect has neither error nor ranks");
}

}  // namespace cpshard::conformance
