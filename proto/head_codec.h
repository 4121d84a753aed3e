// What the heads of all messages about a batch have in common: options, cp_size, ranks and specs.
// Used inside proto/ only.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/plan/status_macros.h"
#include "proto/entry_codec.h"
#include "proto/options.h"

namespace cpshard {

// The wire has 32 bits for it; what does not fit is refused here, not cut off.
inline absl::StatusOr<uint32_t> ToWire(absl::string_view what, int64_t value) {
  if (value >= 0 && value <= int64_t{std::numeric_limits<uint32_t>::max()}) {
    return static_cast<uint32_t>(value);
  }
  return absl::InvalidArgumentError(absl::StrCat(what, " ", value, " is out of range"));
}

template <typename Message>
absl::Status EncodeHead(const Options& options, std::optional<int64_t> cp_size,
                        absl::Span<const int64_t> ranks, Message* message) {
  *message->mutable_options() = options.message();
  if (cp_size) {
    CPSHARD_ASSIGN_OR_RETURN(const uint32_t size, ToWire("cp_size", *cp_size));
    message->set_cp_size(size);
  }
  for (int64_t rank : ranks) {
    CPSHARD_ASSIGN_OR_RETURN(const uint32_t value, ToWire("rank", rank));
    message->add_ranks(value);
  }
  return absl::OkStatus();
}

// Fills spec and ranks of a Request or a BatchBegin whose cp_size is known, validated.
template <typename Message, typename Head>
absl::Status DecodeSpecsAndRanks(const Message& message, const Limits& limits, Head* head) {
  CPSHARD_ASSIGN_OR_RETURN(head->spec, DecodeSpecs(message.entries()));
  head->spec.cp_size = head->cp_size;
  CPSHARD_RETURN_IF_ERROR(ValidateSpec(head->spec, limits));
  const std::vector<int64_t> asked(message.ranks().begin(), message.ranks().end());
  CPSHARD_ASSIGN_OR_RETURN(head->ranks, ResolveRanks(asked, head->spec.num_ranks()));
  return absl::OkStatus();
}

// Fills options, cp_size, ranks and spec, validated.
template <typename Message, typename Head>
absl::Status DecodeHead(const Message& message, const Limits& limits, Head* head) {
  head->options = Options(message.options());
  if (message.has_cp_size()) head->cp_size = message.cp_size();
  return DecodeSpecsAndRanks(message, limits, head);
}

}  // namespace cpshard
