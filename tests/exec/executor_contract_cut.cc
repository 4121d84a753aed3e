// CutTask: every kind of move, on every dtype, at every alignment, in every geometry.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "tests/exec/executor_contract.h"

namespace cpshard {
namespace {

using Kind = Move::Kind;

// What stands in the source; small enough for every dtype, with room to continue.
int64_t SourceValue(int64_t outer, int64_t column, int64_t e) {
  return (outer * 11 + column * 3 + e) % 50;
}

// The value that `move` puts on its column i; for kFill, `fill`.
int64_t MovedValue(const Move& move, int64_t outer, int64_t i, int64_t e, int64_t fill) {
  switch (move.kind) {
    case Move::Kind::kCopy:
      return SourceValue(outer, move.from + i, e);
    case Move::Kind::kFill:
      return fill;
    case Move::Kind::kContinue:
      return SourceValue(outer, move.from, e) + move.start + i;
    case Move::Kind::kRamp:
      return move.start + move.step * i;
  }
  return 0;
}

// A cut and the memory around it. Values are encoded by table: 0 ... 127 are enough.
struct Cut {
  DType dtype = DType::kI64;
  int64_t outer = 2, inner = 1, columns = 0, row_divisor = 1;
  bool one_row_for_all = false;
  int64_t fill = 77;
  std::vector<Moves> rows;
  std::vector<int64_t> dest_columns;
  int64_t gap = 1;  // elements between the rows of a destination, which nobody writes
  size_t source_offset = 0, dest_offset = 0;
};

class Encoded {
 public:
  explicit Encoded(DType dtype) : item_(ItemSize(dtype)) {
    for (int64_t value = 0; value < 128; ++value) {
      bits_[value] = Encode(dtype, static_cast<double>(value));
    }
  }
  void Put(std::byte* to, int64_t value) const { std::memcpy(to, &bits_.at(value), item_); }

 private:
  int64_t item_;
  std::array<uint64_t, 128> bits_;
};

const Encoded& EncodedAs(DType dtype) {
  static const std::vector<Encoded> tables(kAllDTypes.begin(), kAllDTypes.end());
  return tables.at(static_cast<size_t>(dtype));
}

SourceMemory SourceOf(const Cut& cut) {
  const int64_t item = ItemSize(cut.dtype);
  const int64_t count = (cut.one_row_for_all ? 1 : cut.outer) * cut.columns * cut.inner;
  SourceMemory source(cut.source_offset, count * item);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t column = i / cut.inner;
    EncodedAs(cut.dtype).Put(
        source.data() + i * item,
        SourceValue(column / cut.columns, column % cut.columns, i % cut.inner));
  }
  return source;
}

// Writes what the moves of `cut` should write.
void Expect(const Cut& cut, const CutTask& task, std::vector<GuardedMemory>& dests) {
  for (int64_t outer = 0; outer < cut.outer; ++outer) {
    for (const Move& move : cut.rows[outer / cut.row_divisor % cut.rows.size()]) {
      std::byte* row = dests[move.dest].expected() + outer * task.dest_strides[move.dest];
      for (int64_t k = 0; k < move.length * cut.inner; ++k) {
        EncodedAs(cut.dtype).Put(row + (move.to * cut.inner + k) * ItemSize(cut.dtype),
                                 MovedValue(move, cut.one_row_for_all ? 0 : outer, k / cut.inner,
                                            k % cut.inner, cut.fill));
      }
    }
  }
}

// A cut in memory, with what its destinations should hold in the end.
class PlacedCut {
 public:
  explicit PlacedCut(const Cut& cut) : cut_(cut), source_(SourceOf(cut)) {
    task_.source = source_.data();
    task_.outer = cut.outer;
    task_.column_bytes = cut.inner * ItemSize(cut.dtype);
    task_.source_stride = cut.one_row_for_all ? 0 : cut.columns * task_.column_bytes;
    task_.dtype = cut.dtype;
    task_.fill.bits = Encode(cut.dtype, static_cast<double>(cut.fill));
    task_.moves = Share(cut.rows);
    task_.row_divisor = cut.row_divisor;
    for (int64_t columns : cut.dest_columns) {
      task_.dest_strides.push_back((columns * cut.inner + cut.gap) * ItemSize(cut.dtype));
      dests_.emplace_back(cut.dest_offset, cut.outer * task_.dest_strides.back());
    }
    for (GuardedMemory& dest : dests_) task_.dests.push_back(dest.data());
    Expect(cut, task_, dests_);
  }

  const CutTask& task() const { return task_; }

  // All bytes of its destinations, guards and gaps included.
  void Check() const {
    for (size_t k = 0; k < dests_.size(); ++k) {
      ASSERT_TRUE(dests_[k].Matches())
          << "dest " << k << ", " << DTypeName(cut_.dtype) << ", inner " << cut_.inner
          << ", source +" << cut_.source_offset << ", dest +" << cut_.dest_offset;
    }
  }

 private:
  Cut cut_;
  SourceMemory source_;
  CutTask task_;
  std::vector<GuardedMemory> dests_;
};

// In one Run.
void CheckCuts(Executor& executor, const std::vector<Cut>& cuts) {
  std::vector<PlacedCut> placed;
  std::vector<Task> tasks;
  for (const Cut& cut : cuts) tasks.push_back(placed.emplace_back(cut).task());
  const absl::Status status = executor.Run(tasks);
  ASSERT_TRUE(status.ok()) << status;
  for (const PlacedCut& cut : placed) ASSERT_NO_FATAL_FAILURE(cut.Check());
}

void CheckCut(Executor& executor, const Cut& cut) { CheckCuts(executor, {cut}); }

// One move of each kind, from column 2 (or 1, to be continued) to column 1.
std::vector<Move> MovesOfEveryKind(DType dtype, int64_t length) {
  std::vector<Move> moves = {{Kind::kCopy, 0, 0, 2, 1, length, 0},
                             {Kind::kFill, 0, 0, 0, 1, length, 0},
                             {Kind::kRamp, 0, 0, 0, 1, length, 1},
                             {Kind::kRamp, 1, 0, 0, 1, length, 3}};
  if (dtype != DType::kBool) moves.push_back({Kind::kContinue, 0, 0, 1, 1, length, 2});
  return moves;
}

TEST_P(ExecutorContract, EveryMoveOfEveryDTypeWritesItsColumnsAtEveryAlignment) {
  for (DType dtype : kAllDTypes) {
    for (int64_t length : {0, 1, 2, 7, 33}) {
      for (const Move& move : MovesOfEveryKind(dtype, length)) {
        Cut cut{.dtype = dtype, .columns = length + 3, .rows = {{move}}};
        cut.dest_columns = {length + 2};  // a column before, one behind: not written
        for (int64_t inner : {1, 3}) {
          cut.inner = inner;
          std::vector<Cut> cuts;
          ForAlignments([&](size_t source, size_t dest) {
            cut.source_offset = source;
            cut.dest_offset = dest;
            cuts.push_back(cut);
          });
          ASSERT_NO_FATAL_FAILURE(CheckCuts(*executor_, cuts));
        }
      }
    }
  }
}

TEST_P(ExecutorContract, LongRunsOfManyInnerSizesAreCopiedWhole) {
  for (DType dtype : {DType::kBool, DType::kI16, DType::kF32, DType::kI64}) {
    for (int64_t inner : {1, 5, 64, 100}) {
      for (int64_t length : {63, 64, 65, 500}) {
        CheckCut(*executor_, {.dtype = dtype,
                              .inner = inner,
                              .columns = length + 2,
                              .rows = {{{Kind::kCopy, 0, 0, 2, 0, length, 0}}},
                              .dest_columns = {length},
                              .gap = 0,
                              .source_offset = 8,
                              .dest_offset = 24});
      }
    }
  }
}

TEST_P(ExecutorContract, PiecesThatFollowEachOtherMeetWithoutASeam) {
  for (int64_t first : {1, 2, 63, 64, 65}) {
    for (int64_t second : {1, 62, 63, 64, 65, 130}) {
      for (size_t offset = 0; offset < 64; ++offset) {
        Cut cut{.dtype = DType::kU8, .outer = 2, .columns = 200, .dest_offset = offset};
        Moves moves;
        int64_t to = 0;
        for (int piece = 0; piece < 6; ++piece) {
          const int64_t length = piece % 2 == 0 ? first : second;
          moves.push_back({Kind::kCopy, 0, 0, 200 - length, to, length, 0});
          to += length;
        }
        moves.insert(moves.begin() + 3, {Kind::kFill, 0, 0, 0, to, 5, 0});  // in between
        cut.rows = {moves};
        cut.dest_columns = {to + 5};
        CheckCut(*executor_, cut);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(ExecutorContract, ALaterMoveOverwritesAnEarlierOne) {
  for (size_t offset = 0; offset < 64; ++offset) {
    CheckCut(*executor_, {.dtype = DType::kI32,
                          .columns = 100,
                          .rows = {{{Kind::kCopy, 0, 0, 0, 0, 50, 0},
                                    {Kind::kFill, 0, 0, 0, 45, 5, 0},
                                    {Kind::kCopy, 0, 0, 60, 15, 30, 0},
                                    {Kind::kCopy, 0, 0, 3, 5, 10, 0},
                                    {Kind::kRamp, 1, 0, 0, 41, 2, 9}}},
                          .dest_columns = {50},
                          .dest_offset = offset});
  }
}

TEST_P(ExecutorContract, EveryRowHasItsOwnMovesAndTheDivisorSaysWhichRow) {
  const std::vector<Moves> rows = {
      {{Kind::kCopy, 0, 0, 0, 0, 3, 0}},
      {{Kind::kRamp, 1, 0, 0, 1, 2, 40}},
      {{Kind::kFill, 0, 0, 0, 0, 1, 0}, {Kind::kCopy, 0, 0, 5, 2, 1, 0}}};
  for (int64_t divisor : {1, 2, 4, 12}) {
    CheckCut(*executor_, {.dtype = DType::kI16,
                          .outer = 24,
                          .columns = 6,
                          .row_divisor = divisor,
                          .rows = rows,
                          .dest_columns = {3}});
  }
}

TEST_P(ExecutorContract, OneSourceRowMayStandForEveryOuterIndex) {
  CheckCut(*executor_,
           {.dtype = DType::kF32,
            .outer = 5,
            .inner = 2,
            .columns = 9,
            .one_row_for_all = true,
            .rows = {{{Kind::kCopy, 0, 0, 3, 0, 6, 0}, {Kind::kContinue, 0, 0, 8, 6, 2, 1}}},
            .dest_columns = {8}});
}

TEST_P(ExecutorContract, SeveralDestinationsOfOneTaskKeepTheirOwnStrides) {
  CheckCut(*executor_, {.dtype = DType::kI64,
                        .outer = 3,
                        .columns = 8,
                        .rows = {{{Kind::kCopy, 0, 0, 0, 0, 2, 0},
                                  {Kind::kCopy, 0, 1, 2, 0, 4, 0},
                                  {Kind::kCopy, 0, 0, 6, 2, 2, 0},
                                  {Kind::kFill, 0, 2, 0, 0, 1, 0}}},
                        .dest_columns = {4, 4, 1, 0}});
}

// Any moves at all, none overlapping another.
TEST_P(ExecutorContract, RandomCutsWriteWhatTheirMovesSay) {
  std::mt19937 random(7);
  const auto below = [&random](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 600; ++round) {
    Cut cut{.dtype = kAllDTypes[1 + below(9)]};  // bool cannot be continued
    cut.outer = below(6);
    cut.inner = 1 + below(4);
    cut.columns = 1 + below(300);
    cut.row_divisor = 1 + below(3);
    cut.one_row_for_all = below(4) == 0;
    cut.gap = below(3);
    cut.source_offset = below(65);
    cut.dest_offset = below(65);
    cut.dest_columns.assign(1 + below(4), 0);
    std::vector<int64_t> widest = cut.dest_columns;
    for (int64_t row = 1 + below(3); row > 0; --row) {
      std::vector<int64_t> filled(cut.dest_columns.size(), 0);
      Moves moves;
      for (int64_t n = below(12); n > 0; --n) {
        Move move{static_cast<Kind>(below(4)), static_cast<uint8_t>(below(2))};
        move.dest = static_cast<int32_t>(below(filled.size()));
        move.from = below(cut.columns);
        move.length = below(std::min<int64_t>(cut.columns - move.from, 70) + 1);
        move.start = below(7);
        move.to = filled[move.dest];
        filled[move.dest] += move.length + below(2);
        moves.push_back(move);
      }
      for (size_t k = 0; k < filled.size(); ++k) widest[k] = std::max(widest[k], filled[k]);
      cut.rows.push_back(moves);
    }
    cut.dest_columns = widest;
    CheckCut(*executor_, cut);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace cpshard
