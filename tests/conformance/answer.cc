#include "tests/conformance/answer.h"

#include "absl/strings/str_cat.h"

namespace cpshard::conformance {
namespace {

// FNV-1a: the same in every run and on every machine, unlike absl::Hash.
class Fingerprint {
 public:
  void Add(absl::string_view text) {
    for (unsigned char c : text) value_ = (value_ ^ c) * 0x100000001b3u;
    value_ = (value_ ^ 0x100u) * 0x100000001b3u;
  }
  void Add(int64_t number) { Add(absl::StrCat(number)); }
  void Add(const std::optional<int64_t>& number) { Add(number ? absl::StrCat(*number) : "none"); }
  void Add(const std::optional<IntArray>& array) {
    if (!array) return Add("none");
    for (int64_t dim : array->shape) Add(dim);
    for (int64_t value : array->values) Add(value);
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

struct AddScalar {
  Fingerprint& print;
  void operator()(bool value) const { print.Add(value ? "true" : "false"); }
  void operator()(int64_t value) const { print.Add(value); }
  void operator()(double value) const { print.Add(absl::StrCat("float ", value)); }
  void operator()(const std::string& value) const { print.Add(value); }
};

}  // namespace

std::string Describe(const Answer& answer) {
  if (!answer.ok()) return absl::StrCat("refused, ", answer.status().ToString());
  Fingerprint print;
  size_t streams = 0;
  for (const RankAnswer& rank : *answer) {
    for (const Batch* batch : {&rank.batch, &rank.state}) {
      print.Add(absl::StrCat(DigestOf(*batch)));
      for (const ScalarEntry& scalar : batch->scalars) {
        print.Add(scalar.name);
        std::visit(AddScalar{print}, scalar.value);
      }
    }
    print.Add(rank.layout.local_token_global_indices);
    print.Add(rank.layout.original_seq_len);
    print.Add(rank.layout.padded_seq_len);
    print.Add(rank.layout.input_row_shape);
    print.Add(rank.layout.input_token_stream_positions);
    streams += rank.batch.tensors.size() + rank.batch.scalars.size();
  }
  return absl::StrCat("shards of ", answer->size(), " ranks, ", streams, " entries, fingerprint ",
                      absl::Hex(print.value(), absl::kZeroPad16));
}

}  // namespace cpshard::conformance
