#include <google/protobuf/util/field_comparator.h>
#include <google/protobuf/util/message_differencer.h>

#include <optional>
#include <vector>

#include "cpshard/v1/options.pb.h"
#include "proto/options.h"
#include "tests/fuzz/targets.h"

namespace cpshard::fuzz {
namespace {

bool Same(const Options& a, const Options& b) {
  google::protobuf::util::DefaultFieldComparator comparator;
  comparator.set_treat_nan_as_equal(true);
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_field_comparator(&comparator);
  return differencer.Compare(a.message(), b.message());
}

std::vector<BatchSpec> Specs() {
  const BatchSpec plain = {{{"input_ids", DType::kI64, {2, 6}},
                            {"labels", DType::kI64, {2, 6}},
                            {"extra", DType::kF32, {2, 6, 3}},
                            {"late", DType::kI16, {2, 3, 6}}},
                           {{"note", std::string("x")}},
                           2};
  BatchSpec without_mesh = plain;
  without_mesh.cp_size.reset();
  const BatchSpec embeds = {{{"inputs_embeds", DType::kBF16, {1, 9, 4}},
                             {"padding_mask", DType::kBool, {1, 9}},
                             {"extra", DType::kBool, {1, 9}}},
                            {},
                            3};
  const BatchSpec packed = {{{"input_ids", DType::kI64, {2, 8}},
                             {"labels", DType::kI32, {2, 8}},
                             {"position_ids", DType::kI64, {2, 8}},
                             {"seq_lens", DType::kI64, {2, 2}},
                             {"seq_lens_padded", DType::kI64, {2, 2}}},
                            {{"qkv_format", std::string("thd")}},
                            2};
  BatchSpec by_value = packed;
  by_value.tensors.resize(3);
  by_value.cp_size.reset();
  return {plain, without_mesh, embeds, packed, by_value};
}

// What a plan reads of the specs above, by name; nullopt: a stream that none of them has values of.
std::optional<PlanValues> ValuesFor(const std::vector<std::string>& needs) {
  static const int64_t ids[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 0, 0, 0, 0};
  static const int64_t real[4] = {3, 4, 8, -1000}, padded[4] = {4, 4, 8, -1000};
  const auto view = [](std::vector<int64_t> dims, const int64_t* values) {
    return IntView(DType::kI64, std::move(dims), reinterpret_cast<const std::byte*>(values));
  };
  const PlanValues all = {{"input_ids", view({2, 8}, ids)},
                          {"seq_lens", view({2, 2}, real)},
                          {"seq_lens_padded", view({2, 2}, padded)}};
  PlanValues values;
  for (const std::string& name : needs) {
    const auto found = all.find(name);
    if (found == all.end()) return std::nullopt;
    values.insert(*found);
  }
  return values;
}

// Every padded column is some rank's, once; or every rank holds them all.
void CheckPartition(const LayoutPlan& layout) {
  IndexMap all;
  for (const IndexMap& map : layout.partition) {
    for (const Run& run : map.runs()) all.Append(run);
  }
  if (layout.partition.front() == IndexMap::Identity(layout.padded_len)) return;
  const auto inverse = all.Inverse(layout.padded_len);
  Must(inverse.ok(), "no padded column is on two ranks");
  for (const Run& run : inverse->runs()) Must(run.source != kFill, "no padded column is left out");
}

void CheckPlan(const Sharder& sharder, const BatchSpec& spec) {
  const std::vector<std::string> needs = sharder.Needs(spec);
  for (const std::string& name : needs) {
    const TensorSpec* tensor = spec.FindTensor(name);
    if (tensor != nullptr && (tensor->dtype != DType::kI64 || NumElements(*tensor) > 16)) return;
  }
  const std::optional<PlanValues> values = ValuesFor(needs);
  if (!values) return;
  const auto plan = sharder.Plan(spec, *values);
  if (!plan.ok()) return;
  const auto chunks = static_cast<int64_t>(plan->chunks.size());
  for (const LayoutPlan& layout : plan->chunks) {
    Must(layout.padded_len >= layout.source_len / chunks, "padding does not shorten");
    Must(static_cast<int64_t>(layout.partition.size()) == plan->num_ranks(), "a map per rank");
    CheckPartition(layout);
  }
  const std::vector<int64_t> ranks = *ResolveRanks({}, plan->num_ranks());
  const auto bytes = CheckedOutputBytes(*plan, ranks, {.max_batch_bytes = 4096});
  Must(!bytes.ok() || (*bytes >= 0 && *bytes <= 4096), "bytes within the limit");
  const auto layouts = CheckedLayoutBytes(*plan, ranks, {.max_batch_bytes = 256});
  Must(!layouts.ok() || (*layouts >= 0 && *layouts <= 256), "layouts within the limit");
}

}  // namespace

void OptionsTarget(absl::string_view input) {
  static const auto& specs = *new std::vector<BatchSpec>(Specs());
  const auto options = Options::FromJson(input);
  if (!options.ok()) return;
  const auto again = Options::FromJson(options->ToJson());
  Must(again.ok() && Same(*options, *again), "options survive their JSON form");
  const auto sharder = options->MakeSharder();
  Must(sharder.ok() == again->MakeSharder().ok(), "and mean the same");
  if (!sharder.ok()) return;
  for (const BatchSpec& spec : specs) CheckPlan(*sharder, spec);
}

}  // namespace cpshard::fuzz
