// What the unary calls answer, as plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/exec/shard.h"
#include "core/plan/batch_totals.h"
#include "core/plan/explain.h"
#include "core/plan/inspect.h"
#include "core/plan/pad_rule.h"
#include "core/plan/shard_layout.h"
#include "core/plan/spec.h"

namespace cpshard {

// Bytes of one unary request or reply: what a client with gRPC's default settings accepts.
inline constexpr int64_t kMaxUnaryBytes = int64_t{4} << 20;
// Bytes of any gRPC message that this project sends or takes.
inline constexpr int64_t kMaxMessageBytes = int64_t{8} << 20;

// Of one ShardBatches stream; docs/WIRE.md says how a batch counts.
struct StreamLimits {
  int64_t max_inflight_bytes = int64_t{256} << 20;
  int64_t max_inflight_batches = 64;
};

// As the message SessionLimits says.
struct SessionLimits {
  int64_t session_bytes = int64_t{4} << 30;
  int64_t replay_steps = 1;
  int64_t ahead_steps = 8;
  int64_t rank_timeout_seconds = 120;
  int64_t max_groups = 64;
  int64_t max_data_streams = 16;
  int64_t max_readers = 4096;
  int64_t max_loaders = 256;
  int64_t max_microbatches = 1024;
  int64_t max_wants = 64;
};

// As the message Counters says.
struct Counters {
  int64_t buffers_out = 0, bytes_out = 0, connections = 0, streams = 0, batches = 0;
  int64_t batches_sharded = 0, batches_refused = 0, streams_stalled = 0, connections_refused = 0;
  int64_t sessions = 0, loaders = 0, session_bytes = 0, most_session_bytes = 0;
  int64_t pushed = 0, delivered = 0, duplicates = 0, pushes_refused = 0;
  int64_t digest_conflicts = 0, digest_changes = 0, seeks = 0, generations = 0;
  int64_t pinned_bytes = 0, pinned_bytes_out = 0, unpinned_bytes_out = 0, unpinned_blocks = 0;
};

struct ServerInfo {
  std::string version;
  std::string instance_id;
  Limits limits;
  StreamLimits stream_limits;
  SessionLimits session_limits;
  int64_t max_chunk_bytes = 0;  // of the body of a frame
  std::vector<std::string> layouts;
  std::vector<std::string> capabilities;
  std::string executor;         // the server's own choice: "cpu", "cuda:0"
  std::string executor_reason;  // why that one
  Counters counters;
};

// Where a token went, or where a slot of row `row` of its shard came from.
struct SlotQuery {
  RankSlot slot;
  int64_t row = 0;
};
using PlaceQuery = std::variant<SourceToken, SlotQuery>;

inline constexpr int64_t kMaxQueries = 1024;  // of one call

// What PlanLayout is asked beside the layout of a batch.
struct PlanQuestions {
  std::vector<int64_t> document_lengths;  // what padding costs them
  std::vector<PlaceQuery> queries;
};

struct StreamSummary {
  TensorSpec spec;
  StreamCut cut;
};

// A plan, as PlanLayout and `cpshard plan` report it.
struct PlanSummary {
  std::vector<ShardLayout> layouts;    // of the ranks asked for
  std::vector<StreamSummary> streams;  // as the first rank asked for receives them
  std::vector<std::string> needs;      // streams whose values the plan reads
  int64_t rows = 0;
  int64_t pad_columns = 0;     // of all rows together
  int64_t padded_columns = 0;  // of all rows together
  int64_t shard_bytes = 0;     // a stream that every rank holds whole counts once
  std::vector<Notice> notices;
  std::optional<Choice> choice;       // of options that name a model
  std::optional<int64_t> row_need;    // as ShardPlan says
  std::optional<BatchTotals> totals;  // absent: there is no plan
  std::vector<RankLoad> loads;        // of every rank, whichever are asked for
  std::vector<DocumentCounts> documents;
  std::optional<PadCosts> pad_costs;  // of the lengths that were asked for
  std::vector<Explanation> answers;   // of the queries
};

// `inspection` is of the plan. InvalidArgument when the shards, or the layouts, would be over
// limits.max_batch_bytes.
absl::StatusOr<PlanSummary> Summarize(const ShardPlan& plan, const Inspection& inspection,
                                      absl::Span<const int64_t> ranks, const Limits& limits);

// InvalidArgument, naming the query: over kMaxQueries; outside of the batch or its shards.
// FailedPrecondition: the plan reports no layout. ResourceExhausted: the answers are too long for a
// reply, as every rank holds everything.
absl::StatusOr<std::vector<Explanation>> AnswerQueries(const ShardPlan& plan,
                                                       const Documents& documents,
                                                       absl::Span<const PlaceQuery> queries);

}  // namespace cpshard
