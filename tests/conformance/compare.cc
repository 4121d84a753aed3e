#include "tests/conformance/compare.h"

#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/conformance/elements.h"
#include "tests/conformance/gradient.h"

namespace cpshard::conformance {
namespace {

using Difference = std::optional<std::string>;

std::string GotWant(absl::string_view where, absl::string_view got, absl::string_view want) {
  return absl::StrCat(where, ": got ", got, ", want ", want);
}

std::string SpecText(const TensorSpec& spec) {
  return absl::StrCat(DTypeName(spec.dtype), " ", DimsString(spec.dims));
}

std::string IndexText(int64_t position, const std::vector<int64_t>& dims) {
  std::vector<int64_t> index(dims.size());
  for (size_t axis = dims.size(); axis-- > 0;) {
    index[axis] = position % dims[axis];
    position /= dims[axis];
  }
  return DimsString(index);
}

std::string ScalarText(const Scalar& scalar) {
  struct Text {
    std::string operator()(bool value) const { return value ? "bool true" : "bool false"; }
    std::string operator()(int64_t value) const { return absl::StrCat("integer ", value); }
    std::string operator()(double value) const { return absl::StrFormat("float %.17g", value); }
    std::string operator()(const std::string& v) const { return absl::StrCat("string '", v, "'"); }
  };
  return std::visit(Text{}, scalar);
}

bool SameScalar(const Scalar& a, const Scalar& b) {
  const double* x = std::get_if<double>(&a);
  const double* y = std::get_if<double>(&b);
  if (x == nullptr || y == nullptr) return a == b;
  return SameElement(reinterpret_cast<const std::byte*>(x), reinterpret_cast<const std::byte*>(y),
                     DType::kF64);
}

std::string ShardsText(size_t ranks) { return absl::StrCat("shards of ", ranks, " ranks"); }

Difference CompareTensors(absl::string_view where, const Tensor& got, const Tensor& want) {
  if (got.spec.dtype != want.spec.dtype || got.spec.dims != want.spec.dims) {
    return GotWant(where, SpecText(got.spec), SpecText(want.spec));
  }
  if (got.buffer.size() != want.buffer.size()) {
    return GotWant(where, absl::StrCat(got.buffer.size(), " bytes"),
                   absl::StrCat(want.buffer.size(), " bytes"));
  }
  const DType dtype = want.spec.dtype;
  const int64_t item = ItemSize(dtype);
  for (int64_t i = 0; i < static_cast<int64_t>(want.buffer.size()) / item; ++i) {
    const std::byte* got_element = got.buffer.data() + i * item;
    const std::byte* want_element = want.buffer.data() + i * item;
    if (SameElement(got_element, want_element, dtype)) continue;
    return GotWant(absl::StrCat(where, ", index ", IndexText(i, want.spec.dims)),
                   ElementText(got_element, dtype), ElementText(want_element, dtype));
  }
  return std::nullopt;
}

const ScalarEntry* FindScalar(const Batch& batch, absl::string_view name) {
  for (const ScalarEntry& entry : batch.scalars) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

// What a batch holds under a name, for messages.
std::string EntryText(const Batch& batch, absl::string_view name) {
  if (const Tensor* tensor = batch.FindTensor(name)) return SpecText(tensor->spec);
  if (const ScalarEntry* scalar = FindScalar(batch, name)) return ScalarText(scalar->value);
  return "nothing";
}

Difference CompareEntries(absl::string_view rank, absl::string_view name, const Batch& got,
                          const Batch& want) {
  const std::string where = absl::StrCat(rank, ", stream ", name);
  const Tensor* got_tensor = got.FindTensor(name);
  const Tensor* want_tensor = want.FindTensor(name);
  if (got_tensor != nullptr && want_tensor != nullptr) {
    return CompareTensors(where, *got_tensor, *want_tensor);
  }
  const ScalarEntry* got_scalar = FindScalar(got, name);
  const ScalarEntry* want_scalar = FindScalar(want, name);
  const bool same = got_scalar != nullptr && want_scalar != nullptr &&
                    SameScalar(got_scalar->value, want_scalar->value);
  if (same) return std::nullopt;
  return GotWant(where, EntryText(got, name), EntryText(want, name));
}

std::vector<std::string> NamesOf(const Batch& batch) {
  std::vector<std::string> names;
  for (const Tensor& tensor : batch.tensors) names.push_back(tensor.spec.name);
  for (const ScalarEntry& scalar : batch.scalars) names.push_back(scalar.name);
  return names;
}

Difference CompareBatches(absl::string_view rank, const Batch& got, const Batch& want) {
  std::vector<std::string> names = NamesOf(want);
  for (std::string& name : NamesOf(got)) {
    if (!IsGradientKey(name)) names.push_back(std::move(name));  // ours; compared where expected
  }
  for (const std::string& name : names) {
    if (Difference difference = CompareEntries(rank, name, got, want)) return difference;
  }
  std::set<std::string> once;
  for (const std::string& name : NamesOf(got)) {
    if (!once.insert(name).second) return absl::StrCat(rank, ", stream ", name, ": got it twice");
  }
  return std::nullopt;
}

std::string FieldText(const std::optional<int64_t>& field) {
  return field ? absl::StrCat(*field) : "none";
}

std::string FieldText(const std::optional<IntArray>& field) {
  if (!field) return "none";
  return absl::StrCat("shape ", DimsString(field->shape), " values [",
                      absl::StrJoin(field->values, ", "), "]");
}

Difference CompareLayouts(absl::string_view rank, const ShardLayout& got, const ShardLayout& want) {
  const auto compare = [&](absl::string_view name, const auto& g, const auto& w) -> Difference {
    if (g == w) return std::nullopt;
    return GotWant(absl::StrCat(rank, ", layout ", name), FieldText(g), FieldText(w));
  };
  Difference difference = compare("original_seq_len", got.original_seq_len, want.original_seq_len);
  if (!difference) difference = compare("padded_seq_len", got.padded_seq_len, want.padded_seq_len);
  if (!difference) {
    difference = compare("local_token_global_indices", got.local_token_global_indices,
                         want.local_token_global_indices);
  }
  if (!difference) {
    difference = compare("input_row_shape", got.input_row_shape, want.input_row_shape);
  }
  if (!difference) {
    difference = compare("input_token_stream_positions", got.input_token_stream_positions,
                         want.input_token_stream_positions);
  }
  return difference;
}

}  // namespace

std::vector<std::string> DropUnavailable(bool on_wire, Expectation& expectation) {
  std::set<std::string> dropped;
  for (RankAnswer& rank : expectation.ranks) {
    std::erase_if(rank.batch.tensors, [&](const Tensor& tensor) {
      const std::string& name = tensor.spec.name;
      const bool drop = IsGradientKey(name) && (on_wire || name != kGradientOfSum);
      if (drop) dropped.insert(name);
      return drop;
    });
    if (!on_wire) continue;
    for (const std::string& name : NamesOf(rank.state)) dropped.insert("state." + name);
    rank.state = {};
  }
  return {dropped.begin(), dropped.end()};
}

std::optional<std::string> FirstDifference(const Answer& answer, const Expectation& expectation) {
  if (expectation.refusal || !answer.ok()) {
    if (expectation.refusal && answer.status().code() == *expectation.refusal) return std::nullopt;
    return GotWant("status", answer.ok() ? ShardsText(answer->size()) : answer.status().ToString(),
                   expectation.refusal ? absl::StatusCodeToString(*expectation.refusal)
                                       : ShardsText(expectation.ranks.size()));
  }
  if (answer->size() != expectation.ranks.size()) {
    return GotWant("ranks", absl::StrCat(answer->size()), absl::StrCat(expectation.ranks.size()));
  }
  for (size_t r = 0; r < answer->size(); ++r) {
    const RankAnswer& got = (*answer)[r];
    const RankAnswer& want = expectation.ranks[r];
    const std::string rank = absl::StrCat("rank ", r);
    Difference difference = CompareBatches(rank, got.batch, want.batch);
    if (!difference) difference = CompareLayouts(rank, got.layout, want.layout);
    if (!difference && expectation.lists_state) {
      difference = CompareBatches(rank + ", state", got.state, want.state);
    }
    if (difference) return difference;
  }
  return std::nullopt;
}

}  // namespace cpshard::conformance
