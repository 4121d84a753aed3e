#include <google/protobuf/util/field_comparator.h>
#include <google/protobuf/util/message_differencer.h>

#include <cstring>
#include <map>
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
  BatchSpec masked = plain;
  masked.tensors.push_back({"attention_mask", DType::kI64, {2, 6}});
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
  BatchSpec one_row = packed;
  for (TensorSpec& tensor : one_row.tensors) tensor.dims[0] = 1;
  const BatchSpec boundaries = {{{"input_ids", DType::kI64, {1, 8}},
                                 {"labels", DType::kI64, {1, 8}},
                                 {"cu_seqlens", DType::kI64, {3}}},
                                {},
                                2};
  const BatchSpec visual = {{{"input_ids", DType::kI64, {1, 7}},
                             {"labels", DType::kF16, {1, 7}},
                             {"visual_pos_masks", DType::kBool, {1, 7}},
                             {"_deepstack_visual_embeds.0", DType::kF32, {4, 2}},
                             {"_deepstack_visual_embeds.1", DType::kF32, {4}}},
                            {},
                            3};
  return {plain, without_mesh, masked, embeds, packed, by_value, one_row, boundaries, visual};
}

// What a plan reads of the specs above; nullopt: a stream that there are no values of. `bytes`
// holds them.
std::optional<PlanValues> ValuesFor(const BatchSpec& spec, const std::vector<std::string>& needs,
                                    std::vector<std::vector<std::byte>>& bytes) {
  static const auto& all = *new std::map<std::string, std::vector<int64_t>>{
      {"input_ids", {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 0, 0, 0, 0}},
      {"seq_lens", {3, 4, 8, -1000}},
      {"seq_lens_padded", {4, 4, 8, -1000}},
      {"cu_seqlens", {0, 3, 8}},
      {"attention_mask", {1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0}},
      {"padding_mask", {0, 0, 0, 0, 0, 0, 0, 1, 1}},
      {"visual_pos_masks", {0, 1, 1, 0, 0, 1, 1}}};
  PlanValues values;
  for (const std::string& name : needs) {
    const auto found = all.find(name);
    const TensorSpec* tensor = spec.FindTensor(name);
    if (tensor == nullptr) continue;  // a scalar: the plan refuses it
    const int64_t elements = NumElements(*tensor);
    if (found == all.end() || elements > static_cast<int64_t>(found->second.size())) return {};
    const int64_t item = ItemSize(tensor->dtype);
    bytes.emplace_back(elements * item);
    for (int64_t i = 0; i < elements; ++i) {
      std::memcpy(bytes.back().data() + i * item, &found->second[i], item);
    }
    values.emplace(name, ValueView(tensor->dtype, tensor->dims, bytes.back().data()));
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
  std::vector<std::vector<std::byte>> read;
  const std::optional<PlanValues> values = ValuesFor(spec, sharder.Needs(spec), read);
  if (!values) return;
  const auto plan = sharder.Plan(spec, *values);
  if (!plan.ok()) return;
  const auto chunks = static_cast<int64_t>(plan->chunks.size());
  for (const LayoutPlan& layout : plan->chunks) {
    Must(layout.report.stream_positions || layout.padded_len >= layout.source_len / chunks,
         "padding does not shorten rows, where documents do not move");
    Must(static_cast<int64_t>(layout.partition.size()) == plan->num_ranks(), "a map per rank");
    CheckPartition(layout);
  }
  for (const LayoutPlan& layout : plan->others) CheckPartition(layout);
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
