// Every way to put up to three documents into one or two short rows, fitting or not: the product
// does what the oracle says, refusals included (contract 4.7, 5, 6, decision D5).
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/oracle/tensors.h"
#include "tests/property/checks.h"
#include "tests/property/documents.h"

namespace cpshard::property {
namespace {

const LayoutCase& Thd(int64_t num_chunks) { return CaseNamed(absl::StrCat("thd_", num_chunks)); }

// Compares batches of one shape that differ in their lengths alone.
class Comparison {
 public:
  Comparison(int64_t rows, int64_t length) : rows_(rows), length_(length) {
    Rng rng(1);
    for (const char* name : {"input_ids", "labels", "position_ids"}) {
      sample_.streams[name] = MakeTensor("i64", {rows, length}, Content::kCount, rng);
    }
  }

  ~Comparison() {
    const std::string shape = absl::StrCat("B", rows_, "_S", length_);
    testing::Test::RecordProperty("batches_" + shape, absl::StrCat(cases_));
    testing::Test::RecordProperty("accepted_" + shape, absl::StrCat(accepted_));
    std::printf("B %lld, S %lld: %lld batches, %lld of them accepted\n",
                static_cast<long long>(rows_), static_cast<long long>(length_),
                static_cast<long long>(cases_), static_cast<long long>(accepted_));
    EXPECT_GT(accepted_, 0);
    EXPECT_LT(accepted_, cases_);
  }

  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  void Send(const std::vector<Row>& rows, int64_t places) {
    SendLengths(rows, places, "i64", sample_);
  }
  oracle::Tensor& real() { return sample_.streams.at("seq_lens"); }
  oracle::Tensor& padded() { return sample_.streams.at("seq_lens_padded"); }

  void Check(std::optional<int64_t> cp_size, int64_t num_chunks = 1) {
    if (faults_ >= 3) return;
    const LayoutCase& layout = Thd(num_chunks);
    const Point point{.cp_size = cp_size, .length = length_, .rows = rows_};
    const std::vector<oracle::Shard> want = layout.Expected(sample_, point);
    ++cases_;
    accepted_ += want.empty() ? 0 : 1;
    const std::string fault = Fault(layout, point, want);
    if (fault.empty()) return;
    ++faults_;
    ADD_FAILURE() << layout.name << ": " << fault << "\n  " << Describe(sample_, point);
  }

  // The same lengths as real ones alone.
  void CheckWithoutPadded(std::optional<int64_t> cp_size, int64_t num_chunks = 1) {
    auto padded = sample_.streams.extract("seq_lens_padded");
    Check(cp_size, num_chunks);
    sample_.streams.insert(std::move(padded));
  }

 private:
  std::string Fault(const LayoutCase& layout, const Point& point,
                    const std::vector<oracle::Shard>& want) const {
    const auto got = ShardSample(layout, sample_, point);
    if (!got.ok()) {
      if (!want.empty()) return absl::StrCat("refused: ", got.status().ToString());
      return absl::IsInvalidArgument(got.status()) ? "" : got.status().ToString();
    }
    if (want.empty()) return "accepted what the oracle refuses";
    for (size_t rank = 0; rank < want.size(); ++rank) {
      const std::string fault = ShardFault(got->shards[rank], want[rank]);
      if (!fault.empty()) return absl::StrCat("rank ", rank, ": ", fault);
    }
    return "";
  }

  int64_t rows_, length_;
  Sample sample_;
  int64_t cases_ = 0, accepted_ = 0, faults_ = 0;
};

using Lengths = std::vector<int64_t>;
using VisitRow = std::function<void(const Row&)>;

// Every list of up to `most` padded lengths, multiples of `step`, of a sum up to `longest`.
std::vector<Lengths> PaddedLists(int64_t most, int64_t step, int64_t longest) {
  std::vector<Lengths> lists = {{}};
  for (size_t i = 0; i < lists.size(); ++i) {
    const Lengths list = lists[i];
    if (static_cast<int64_t>(list.size()) == most) continue;
    int64_t sum = 0;
    for (const int64_t length : list) sum += length;
    for (int64_t next = 0; sum + next <= longest; next += step) {
      lists.push_back(list);
      lists.back().push_back(next);
    }
  }
  return lists;
}

// Every way for the documents to be shorter than their padded lengths; or longer by one.
void VisitReals(const Lengths& padded, const VisitRow& visit) {
  Row row{.real = Lengths(padded.size(), 0), .padded = padded};
  while (true) {
    visit(row);
    size_t i = 0;
    while (i < padded.size() && row.real[i] == padded[i] + 1) row.real[i++] = 0;
    if (i == padded.size()) return;
    ++row.real[i];
  }
}

// Nothing, one less, or all of every document.
std::vector<Row> CoarseRows(const std::vector<Lengths>& lists) {
  std::vector<Row> rows;
  for (const Lengths& padded : lists) {
    VisitReals(padded, [&](const Row& row) {
      for (size_t i = 0; i < padded.size(); ++i) {
        if (row.real[i] > padded[i]) return;
        if (row.real[i] != 0 && row.real[i] < padded[i] - 1) return;
      }
      rows.push_back(row);
    });
  }
  return rows;
}

constexpr std::optional<int64_t> kMeshes[] = {std::nullopt, 1, 2};

TEST(SmallDocuments, InOneRowAreConvertedAndCutAsTheOracleSays) {
  for (int64_t length = 1; length <= 8; ++length) {
    Comparison comparison(1, length);
    for (const Lengths& padded : PaddedLists(3, 1, length + 1)) {
      VisitReals(padded, [&](const Row& row) {
        comparison.Send({row}, 3);
        for (const auto cp_size : kMeshes) {
          comparison.Check(cp_size);
          if (row.real == row.padded) comparison.CheckWithoutPadded(cp_size);
        }
      });
    }
  }
}

TEST(SmallDocuments, InTwoRowsAreConvertedAndCutAsTheOracleSays) {
  for (int64_t length = 1; length <= 4; ++length) {
    Comparison comparison(2, length);
    const std::vector<Row> rows = CoarseRows(PaddedLists(length == 4 ? 2 : 3, 1, length + 1));
    for (const Row& first : rows) {
      for (const Row& last : rows) {
        comparison.Send({first, last}, 3);
        comparison.Check(std::nullopt);
        comparison.Check(2);
        comparison.Check(2, /*num_chunks=*/2);
        comparison.Check(1, /*num_chunks=*/2);
      }
    }
  }
}

// Full documents, so that more of them and longer rows can be tried.
TEST(SmallDocuments, WithoutPaddingOfTheirOwnInTwoRowsAreCutAsTheOracleSays) {
  for (const int64_t length : {4, 6, 8}) {
    Comparison comparison(2, length);
    const std::vector<Lengths> lists = PaddedLists(3, length == 8 ? 2 : 1, length + 2);
    for (const Lengths& first : lists) {
      for (const Lengths& last : lists) {
        comparison.Send({{first, first}, {last, last}}, 3);
        for (const auto cp_size : kMeshes) {
          comparison.Check(cp_size);
          comparison.CheckWithoutPadded(cp_size);
        }
      }
    }
  }
}

TEST(SmallDocuments, OnThreeRanksAreCutAsTheOracleSays) {
  for (const int64_t rows : {1, 2}) {
    Comparison comparison(rows, 12);
    const std::vector<Row> all = CoarseRows(PaddedLists(rows == 1 ? 3 : 2, 3, 15));
    for (const Row& first : all) {
      if (rows == 1) {
        comparison.Send({first}, 3);
        comparison.Check(3);
        continue;
      }
      for (const Row& last : all) {
        comparison.Send({first, last}, 3);
        comparison.Check(3);
        comparison.Check(3, /*num_chunks=*/2);
      }
    }
  }
}

// The values of [rows, places] that stand for `numbers`, a sentinel at every place of `mask`.
bool Place(const Lengths& numbers, int64_t places, int64_t mask, Lengths& out) {
  size_t next = 0;
  for (int64_t place = 0; place < places; ++place) {
    const bool is_sentinel = ((mask >> place) & 1) != 0;
    if (!is_sentinel && next == numbers.size()) return false;
    out.push_back(is_sentinel ? kSentinel : numbers[next++]);
  }
  return next == numbers.size();
}

TEST(SmallDocuments, MayHaveSentinelsBetweenTheirLengths) {
  constexpr int64_t kPlaces = 4;
  Comparison comparison(1, 4);
  const std::vector<Row> rows = CoarseRows(PaddedLists(3, 2, 4));
  for (const Row& row : rows) {
    comparison.Send({row}, kPlaces);
    for (int64_t of_real = 0; of_real < 1 << kPlaces; ++of_real) {
      for (int64_t of_padded = 0; of_padded < 1 << kPlaces; ++of_padded) {
        Lengths real, padded;
        if (!Place(row.real, kPlaces, of_real, real)) continue;
        if (!Place(row.padded, kPlaces, of_padded, padded)) continue;
        comparison.real() = oracle::FromIntegers("i64", {1, kPlaces}, real);
        comparison.padded() = oracle::FromIntegers("i64", {1, kPlaces}, padded);
        for (const auto cp_size : kMeshes) comparison.Check(cp_size);
      }
    }
  }
}

// The same flat list of lengths, cut into rows elsewhere: each row answers for itself.
TEST(SmallDocuments, BelongToTheRowThatTheirLengthsStandIn) {
  constexpr int64_t kPlaces = 3;
  constexpr int64_t kLength = 4;
  Comparison comparison(2, kLength);
  const std::vector<Lengths> lists = PaddedLists(kPlaces, 1, kLength);
  for (const Lengths& first : lists) {
    for (const Lengths& last : lists) {
      Lengths flat = first;
      flat.insert(flat.end(), last.begin(), last.end());
      comparison.Send({{first, first}, {last, last}}, kPlaces);
      for (size_t in_first = 0; in_first <= flat.size(); ++in_first) {
        const size_t in_last = flat.size() - in_first;
        if (in_first > kPlaces || in_last > kPlaces) continue;
        Lengths real(flat.begin(), flat.begin() + static_cast<int64_t>(in_first));
        real.resize(kPlaces, kSentinel);
        real.insert(real.end(), flat.begin() + static_cast<int64_t>(in_first), flat.end());
        real.resize(2 * kPlaces, kSentinel);
        comparison.real() = oracle::FromIntegers("i64", {2, kPlaces}, real);
        comparison.Check(std::nullopt);
        comparison.Check(2);
      }
    }
  }
}

// One entry of otherwise good lengths is anything near.
TEST(SmallDocuments, AreRefusedForOneBadLengthAsTheOracleSays) {
  for (const int64_t rows : {1, 2}) {
    Comparison comparison(rows, 8);
    const Row good{.real = {4, 3}, .padded = {4, 4}};
    for (const bool in_padded : {false, true}) {
      for (int64_t entry = 0; entry < 2 * rows; ++entry) {
        for (int64_t value = -1002; value <= 18; ++value) {
          comparison.Send(std::vector<Row>(rows, good), 2);
          oracle::Tensor& lengths = in_padded ? comparison.padded() : comparison.real();
          Lengths values = oracle::Integers(lengths);
          values[entry] = value;
          lengths = oracle::FromIntegers("i64", {rows, 2}, values);
          for (const auto cp_size : kMeshes) {
            comparison.Check(cp_size);
            comparison.CheckWithoutPadded(cp_size);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace cpshard::property
