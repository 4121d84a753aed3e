#include "tests/conformance/vectors.h"

#include <algorithm>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/plan/magi_dispatch.h"
#include "core/plan/status_macros.h"
#include "tests/conformance/json.h"

namespace cpshard::conformance {
namespace {

constexpr int64_t kMaxColumns = int64_t{1} << 24;  // more than this runner expands

using Ints = std::vector<int64_t>;

bool Read(const Json& json, std::string& text) {
  if (json.is_string()) text = json.get<std::string>();
  return json.is_string();
}

bool Read(const Json& json, bool& value) {
  if (json.is_boolean()) value = json.get<bool>();
  return json.is_boolean();
}

bool Read(const Json& json, int64_t& value) {
  const std::optional<int64_t> integer = ReadInt64(json);
  value = integer.value_or(0);
  return integer && value >= 1 && value <= kMaxColumns;
}

bool Read(const Json& json, Ints& values) {
  std::optional<Ints> list = ReadInts(json);
  if (list) values = *std::move(list);
  return list.has_value();
}

bool Read(const Json& json, std::optional<Ints>& values) {
  return json.is_null() || Read(json, values.emplace());
}

template <typename T>
bool Read(const Json& json, std::vector<T>& list) {
  if (!json.is_array()) return false;
  for (const Json& element : json) {
    if (!Read(element, list.emplace_back())) return false;
  }
  return true;
}

absl::Status Malformed(const std::string& where, absl::string_view field) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": field '", field, "' is missing, of another type or out of range"));
}

absl::Status CheckSizes(const std::string& where, const DispatchVector& vector) {
  for (const Lists* ranges : {&vector.q_ranges, &vector.k_ranges}) {
    const bool legal = ranges->size() == vector.mask_types.size() &&
                       std::all_of(ranges->begin(), ranges->end(), [&](const Ints& range) {
                         return range.size() == 2 && 0 <= range[0] && range[0] <= range[1] &&
                                range[1] <= vector.total_seqlen;
                       });
    if (!legal) return Malformed(where, ranges == &vector.q_ranges ? "q_ranges" : "k_ranges");
  }
  const int64_t chunks = (vector.total_seqlen + vector.chunk_size - 1) / vector.chunk_size;
  if (static_cast<int64_t>(vector.areas.size()) != chunks) return Malformed(where, "areas");
  if (chunks % vector.cp_size != 0) return Malformed(where, "cp_size");
  if (vector.split_sizes.has_value() != vector.uneven) return Malformed(where, "split_sizes");
  return absl::OkStatus();
}

absl::StatusOr<DispatchVector> ReadVector(const std::string& where, const Json& json) {
  DispatchVector vector;
  const auto read = [&](const char* field, auto& value) {
    const bool legal = json.is_object() && json.contains(field) && Read(json[field], value);
    return legal ? absl::OkStatus() : Malformed(where, field);
  };
  CPSHARD_RETURN_IF_ERROR(read("name", vector.name));
  CPSHARD_RETURN_IF_ERROR(read("q_ranges", vector.q_ranges));
  CPSHARD_RETURN_IF_ERROR(read("k_ranges", vector.k_ranges));
  CPSHARD_RETURN_IF_ERROR(read("mask_types", vector.mask_types));
  CPSHARD_RETURN_IF_ERROR(read("total_seqlen", vector.total_seqlen));
  CPSHARD_RETURN_IF_ERROR(read("chunk_size", vector.chunk_size));
  CPSHARD_RETURN_IF_ERROR(read("cp_size", vector.cp_size));
  CPSHARD_RETURN_IF_ERROR(read("uneven", vector.uneven));
  CPSHARD_RETURN_IF_ERROR(read("areas", vector.areas));
  CPSHARD_RETURN_IF_ERROR(read("partitions", vector.partitions));
  CPSHARD_RETURN_IF_ERROR(read("loads", vector.loads));
  CPSHARD_RETURN_IF_ERROR(read("split_sizes", vector.split_sizes));
  CPSHARD_RETURN_IF_ERROR(CheckSizes(where, vector));
  return vector;
}

// The lengths of documents that attend causally within themselves, one after the other, with
// nothing but padding behind them. nullopt: the mask is something else.
std::optional<Ints> CausalDocuments(const DispatchVector& vector) {
  Ints documents;
  int64_t at = 0;
  for (size_t i = 0; i < vector.mask_types.size(); ++i) {
    const Ints &q = vector.q_ranges[i], &k = vector.k_ranges[i];
    if (k[0] == k[1] && i + 1 == vector.mask_types.size()) break;  // padding attends to nothing
    if (vector.mask_types[i] != "causal" || q != k || q[0] != at) return std::nullopt;
    documents.push_back(q[1] - q[0]);
    at = q[1];
  }
  return documents;
}

Ints LoadsOf(const Lists& dealt, const Ints& areas) {
  Ints loads;
  for (const Ints& chunks : dealt) {
    loads.push_back(0);
    for (const int64_t chunk : chunks) loads.back() += areas[chunk];
  }
  return loads;
}

Ints ColumnsOf(const Lists& dealt, int64_t chunk_size, int64_t total) {
  Ints columns;
  for (const Ints& chunks : dealt) {
    columns.push_back(0);
    for (const int64_t chunk : chunks) {
      columns.back() += std::min(chunk_size, total - chunk * chunk_size);
    }
  }
  return columns;
}

std::string Text(const Ints& list) { return absl::StrCat("[", absl::StrJoin(list, ", "), "]"); }

std::string Text(const Lists& lists) {
  return absl::StrCat(
      "[",
      absl::StrJoin(lists, ", ",
                    [](std::string* out, const Ints& list) { absl::StrAppend(out, Text(list)); }),
      "]");
}

// Collects the first difference.
class Comparison {
 public:
  template <typename T>
  void Compare(absl::string_view what, const T& got, const T& want) {
    if (outcome_.kind == Outcome::Kind::kFailed || got == want) return;
    outcome_.kind = Outcome::Kind::kFailed;
    outcome_.text = absl::StrCat(what, ": got ", Text(got), ", want ", Text(want));
  }

  Outcome Take(const Lists& dealt) {
    outcome_.answer = absl::StrCat("chunks of ranks ", Text(dealt));
    return std::move(outcome_);
  }

 private:
  Outcome outcome_;
};

}  // namespace

absl::StatusOr<std::vector<DispatchVector>> ReadVectors(absl::string_view text) {
  CPSHARD_ASSIGN_OR_RETURN(const Json json, ParseLine(text));
  if (!json.is_array()) return absl::InvalidArgumentError("not a list of vectors");
  std::vector<DispatchVector> vectors;
  for (const Json& element : json) {
    CPSHARD_ASSIGN_OR_RETURN(DispatchVector vector,
                             ReadVector(absl::StrCat("vector ", vectors.size()), element));
    vectors.push_back(std::move(vector));
  }
  return vectors;
}

Outcome RunVector(const DispatchVector& vector) {
  const Lists dealt = DealChunks(vector.areas, vector.cp_size);
  Comparison comparison;
  comparison.Compare("partitions", dealt, vector.partitions);
  comparison.Compare("loads", LoadsOf(dealt, vector.areas), vector.loads);
  if (vector.split_sizes) {
    comparison.Compare("split_sizes", ColumnsOf(dealt, vector.chunk_size, vector.total_seqlen),
                       *vector.split_sizes);
  }
  const std::optional<Ints> documents = CausalDocuments(vector);
  if (!documents) return comparison.Take(dealt);
  const auto num_chunks = static_cast<int64_t>(vector.areas.size());
  comparison.Compare("areas", CausalAreas(*documents, vector.chunk_size, num_chunks), vector.areas);
  if (vector.uneven) return comparison.Take(dealt);
  const int64_t tokens = std::accumulate(documents->begin(), documents->end(), int64_t{0});
  const auto dispatch = DispatchCausal(*documents, tokens, vector.cp_size, vector.chunk_size,
                                       /*min_chunks_per_rank=*/1);
  if (!dispatch.ok()) {
    return {.kind = Outcome::Kind::kFailed, .text = dispatch.status().ToString()};
  }
  comparison.Compare("chunks of the dispatch", dispatch->chunks_of_rank, vector.partitions);
  comparison.Compare("chunk and pad size of the dispatch",
                     Ints{dispatch->chunk_size, dispatch->pad_size},
                     Ints{vector.chunk_size, vector.total_seqlen - tokens});
  return comparison.Take(dealt);
}

}  // namespace cpshard::conformance
