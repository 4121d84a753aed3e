#include "core/torch/agreement.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string_view>

namespace cpshard {
namespace {

// What a rank says, as it is sent: all of it as one hash, then as much as there is room for.
struct Record {
  static constexpr size_t kNumbers = 61, kText = 512;
  uint64_t hash = 0;
  int64_t number_count = 0, text_size = 0;
  std::array<int64_t, kNumbers> numbers = {};
  std::array<char, kText> text = {};
};
constexpr int64_t kWords = sizeof(Record) / sizeof(int64_t);
static_assert(sizeof(Record) == kWords * sizeof(int64_t));

uint64_t HashOf(const void* data, size_t size) {
  return std::hash<std::string_view>()({static_cast<const char*>(data), size});
}

Record RecordOf(at::IntArrayRef numbers, const std::string& what) {
  Record record;
  record.hash = HashOf(what.data(), what.size()) * 31 +
                HashOf(numbers.data(), numbers.size() * sizeof(int64_t));
  record.number_count = static_cast<int64_t>(numbers.size());
  record.text_size = static_cast<int64_t>(what.size());
  std::copy_n(numbers.begin(), std::min(numbers.size(), Record::kNumbers), record.numbers.begin());
  std::copy_n(what.begin(), std::min(what.size(), Record::kText), record.text.begin());
  return record;
}

std::string TextOf(const Record& record) {
  std::string text(record.text.data(), std::min<size_t>(record.text_size, Record::kText));
  if (record.number_count == 0) return text;
  const auto shown = std::min<size_t>(record.number_count, Record::kNumbers);
  text += " [";
  for (size_t i = 0; i < shown; ++i) text += c10::str(i == 0 ? "" : ", ", record.numbers[i]);
  return text + (shown < static_cast<size_t>(record.number_count) ? ", ...]" : "]");
}

}  // namespace

bool AgreementIsChecked() {
  const char* value = std::getenv("CPSHARD_CHECK");
  return value != nullptr && std::string_view(value) == "1";
}

void Agree(at::IntArrayRef numbers, const std::string& what, const TokenGroup& group) {
  const int64_t ranks = group.size();
  if (ranks == 1) return;
  const Record own = RecordOf(numbers, what);
  at::Tensor input = at::empty({kWords}, at::kLong);
  std::memcpy(input.data_ptr(), &own, sizeof(own));
  at::Tensor output =
      at::empty({ranks * kWords}, at::TensorOptions(at::kLong).device(group.AnyDevice()));
  group.AllGather(output, input.to(group.AnyDevice()), "agree");
  output = output.cpu();
  std::vector<Record> all(ranks);
  std::memcpy(all.data(), output.data_ptr(), ranks * sizeof(Record));
  for (int64_t rank = 1; rank < ranks; ++rank) {
    TORCH_CHECK_VALUE(std::memcmp(&all[rank], &all[0], sizeof(Record)) == 0, "the ranks of group '",
                      group.name(), "' disagree: rank 0 is at ", TextOf(all[0]), ", rank ", rank,
                      " at ", TextOf(all[rank]),
                      "; all ranks call the same verbs in the same order with the same layout");
  }
}

void TellRefusal(const c10::Error& error, const char* verb, const TokenGroup& group) {
  if (!AgreementIsChecked()) return;
  Agree({}, c10::str(verb, " refuses: ", error.what_without_backtrace()), group);
}

int64_t Fingerprint(const at::Tensor& tensor) {
  const at::Tensor host = tensor.cpu().contiguous();
  const uint64_t hash = HashOf(host.data_ptr(), host.nbytes()) ^
                        HashOf(host.sizes().data(), host.sizes().size() * sizeof(int64_t)) ^
                        static_cast<uint64_t>(host.scalar_type());
  return static_cast<int64_t>(hash);
}

}  // namespace cpshard
