#include "tests/conformance/compress_multiple.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/plan/model_hooks.h"
#include "core/plan/status_macros.h"

namespace cpshard::conformance {
namespace {

struct Ratios {
  std::string name;
  std::vector<int64_t> values;
};

Answer Multiples(const std::vector<Ratios>& models) {
  std::vector<RankAnswer> answers(1);
  for (const Ratios& ratios : models) {
    CPSHARD_ASSIGN_OR_RETURN(const int64_t multiple, CompressMultiple(ratios.values));
    answers.front().batch.scalars.push_back({ratios.name, multiple});
  }
  return answers;
}

}  // namespace

absl::StatusOr<LibraryCall> ReadCompressMultiple(const Input&, Args& args) {
  const absl::Status malformed =
      absl::InvalidArgumentError("args.compress_ratios must be a list of lists of integers");
  const Json* lists = args.Take("compress_ratios");
  if (lists == nullptr || !lists->is_array()) return malformed;
  std::vector<Ratios> models;
  for (const Json& list : *lists) {
    if (list.is_null()) {
      models.push_back({"None", {}});
      continue;
    }
    std::optional<std::vector<int64_t>> values = ReadInts(list);
    if (!values) return malformed;
    std::string name = absl::StrCat("[", absl::StrJoin(*values, ", "), "]");
    models.push_back({std::move(name), *std::move(values)});
  }
  return LibraryCall([models = std::move(models)](Executor&) { return Multiples(models); });
}

}  // namespace cpshard::conformance
