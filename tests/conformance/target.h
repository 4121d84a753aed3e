// Where ShardBatch is called: in this process, or in a server.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/batch/batch.h"
#include "tests/conformance/answer.h"

namespace cpshard::conformance {

struct ShardCall {
  Batch batch;
  std::string options;             // the JSON form of ShardingOptions
  std::optional<int64_t> cp_size;  // absent = no mesh
};

struct Target {
  bool on_wire = false;
  std::function<Answer(const ShardCall&)> shard;  // all ranks
};

Target InProcess();

// Through the unary call. Errors: those of Client::Connect, and of a first call that waits for the
// server.
absl::StatusOr<Target> ThroughServer(absl::string_view address);

// Through one stream. Errors as above.
absl::StatusOr<Target> ThroughStream(absl::string_view address);

}  // namespace cpshard::conformance
