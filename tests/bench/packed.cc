#include "tests/bench/packed.h"

#include <algorithm>
#include <random>

namespace cpshard::bench {

PackedBatch::PackedBatch(int64_t tokens, int64_t documents, int64_t cp_size) {
  std::mt19937 random(1);
  const int64_t piece = 2 * cp_size;
  std::vector<double> ends(documents);
  double end = 0;
  for (double& of_document : ends) of_document = end += 0.2 + 1.6 * (random() / 4294967296.0);
  int64_t begin = 0;
  for (const double of_document : ends) {
    const auto boundary =
        static_cast<int64_t>(of_document / end * static_cast<double>(tokens / piece) + 0.5) * piece;
    padded_.push_back(boundary - begin);
    const int64_t shorter = random() % 2 == 0 ? static_cast<int64_t>(random() % piece) : 0;
    real_.push_back(std::max<int64_t>(padded_.back() - shorter, 0));
    begin = boundary;
  }
  spec_.cp_size = cp_size;
  spec_.tensors = {{"input_ids", DType::kI64, {1, tokens}},
                   {"labels", DType::kI64, {1, tokens}},
                   {"position_ids", DType::kI64, {1, tokens}},
                   {"seq_lens", DType::kI64, {1, documents}},
                   {"seq_lens_padded", DType::kI64, {1, documents}}};
}

PlanValues PackedBatch::values() const {
  const auto view = [](const std::vector<int64_t>& lengths) {
    return ValueView(DType::kI64, {1, static_cast<int64_t>(lengths.size())},
                     reinterpret_cast<const std::byte*>(lengths.data()));
  };
  PlanValues values;
  values["seq_lens"] = view(real_);
  values["seq_lens_padded"] = view(padded_);
  return values;
}

}  // namespace cpshard::bench
