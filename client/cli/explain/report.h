// What `cpshard explain` says, as lines for people and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/explain/shard_documents.h"
#include "client/cli/explain/shard_files.h"
#include "core/plan/explain.h"

namespace cpshard::explain {

// One token, or one slot.
struct TokenReport {
  struct Neighbour {
    TokenPlace place;
    std::optional<TokenValue> id;  // of input_ids; absent where the shards have none at hand
  };

  TokenPlace place;
  std::optional<DocumentPlace> document;
  int64_t num_documents = 0;     // of the row
  std::string from;              // the stream that told documents; empty: none, the row is one
  std::string unknown;           // why nothing is said of documents
  std::optional<RankSlot> slot;  // whose streams `values` are; absent: none at hand
  std::vector<TokenValue> values;
  std::optional<Neighbour> previous, next;  // in the document
};

// The streams of rank `asked`, else those of the first rank that holds the place.
// Errors as ShardFiles.
absl::StatusOr<TokenReport> ReportOn(ShardFiles& files, TokenPlace place,
                                     std::optional<RankSlot> asked);

// How tokens are counted where the records do not tell the caller's rows; empty where they do.
std::string CountingText(const LayoutTrace& trace);

std::string ToText(const LayoutTrace& trace, const TokenReport& report);
std::string ToJson(const LayoutTrace& trace, const TokenReport& report);

// The layout as a whole: lengths, ranks and their columns, documents.
absl::StatusOr<std::string> SummaryText(ShardFiles& files);  // the first of what there is much of
absl::StatusOr<std::string> SummaryJson(ShardFiles& files);

}  // namespace cpshard::explain
