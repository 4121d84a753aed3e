// Which part of cpshard stands for which reference function. One table (backends.cc): a backend
// that becomes available is one line there and one function that reads its arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/exec/executor.h"
#include "core/plan/element.h"
#include "tests/conformance/answer.h"
#include "tests/conformance/input.h"
#include "tests/conformance/json.h"
#include "tests/conformance/target.h"

namespace cpshard::conformance {

// Reads a case's arguments and notices the ones that nobody reads.
class Args {
 public:
  explicit Args(const Json& object) : object_(object) {}

  // nullptr when missing or null.
  const Json* Take(absl::string_view key);
  bool Has(absl::string_view key) const { return object_.contains(std::string(key)); }
  absl::StatusOr<bool> TakeBool(absl::string_view key, bool missing);
  absl::StatusOr<int64_t> TakeInt(absl::string_view key);
  absl::StatusOr<std::optional<Number>> TakeNumber(absl::string_view key);  // a bool is 0 or 1

  // InvalidArgument: an argument was not taken.
  absl::Status Finish() const;

 private:
  const Json& object_;
  std::set<std::string> taken_;
};

// InvalidArgument: `columns` for each of so many ranks are too much to expand.
absl::Status CheckExpandable(absl::string_view what, int64_t columns, int64_t ranks);

// Made for every rank; what it carries out, `executor` does.
using LibraryCall = std::function<Answer(Executor& executor)>;

// The first two functions empty: known, not built yet.
struct Backend {
  absl::string_view name;
  // {"round_robin": {...}}, the options' member of the oneof `layout`, with other members that
  // belong to it: driven through ShardBatch.
  absl::StatusOr<Json> (*layout)(Args& args) = nullptr;
  // A function of the library, not a verb of the wire.
  absl::StatusOr<LibraryCall> (*library)(const Input& input, Args& args) = nullptr;
  // The reference function has no mesh: a case that has one is malformed.
  bool no_mesh = false;
  // Leaves of a rank's answer what the reference function returns (adapt.h).
  void (*adapt)(const Batch& sent, RankAnswer& answer) = nullptr;
  // In process: adds the state of all ranks (state.h).
  void (*add_state)(const ShardCall& call, std::vector<RankAnswer>& ranks) = nullptr;

  bool built() const { return layout != nullptr || library != nullptr; }
};

// nullptr for a name that the corpus format does not have.
const Backend* FindBackend(absl::string_view name);

struct ShardArgs {
  std::string options;          // the JSON form of ShardingOptions
  bool wants_gradient = false;  // of the primary (args.primary_requires_grad)
};

// Precondition: backend.layout. InvalidArgument: an argument of another type, or one that is
// unknown. Values are not judged here: that is the product's part.
absl::StatusOr<ShardArgs> ReadShardArgs(const Backend& backend, const Json& args);

// Precondition: backend.library. InvalidArgument as above.
absl::StatusOr<LibraryCall> ReadLibraryCall(const Backend& backend, const Input& input);

}  // namespace cpshard::conformance
