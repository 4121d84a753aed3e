#include "core/exec/device/work_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

namespace cpshard {
namespace {

constexpr int64_t kPlenty = int64_t{1} << 40;

std::vector<Piece> PiecesOf(const WorkTable& table) {
  std::vector<Piece> pieces;
  for (const WorkTable::Launch& launch : table.launches) {
    for (int64_t i = 0; i < launch.pieces; ++i) {
      std::memcpy(&pieces.emplace_back(), table.block.data() + launch.offset + i * sizeof(Piece),
                  sizeof(Piece));
    }
  }
  return pieces;
}

Rule RuleOf(PieceKind kind, DType dtype = DType::kI64, DType source = DType::kI64) {
  Rule rule;
  rule.kind = kind;
  rule.dtype = dtype;
  rule.source_dtype = source;
  return rule;
}

// [rule of the strip] bytes written, and bytes written or read, by one unit of its size.
constexpr int64_t kWritten[] = {1, 1, 2, 1}, kWidest[] = {1, 1, 2, 8};

Strips RandomStrips(std::mt19937_64& random) {
  Strips strips;
  strips.rules = {RuleOf(PieceKind::kCopy), RuleOf(PieceKind::kFill),
                  RuleOf(PieceKind::kRamp, DType::kI16),
                  RuleOf(PieceKind::kDerive, DType::kBool, DType::kI64)};
  for (int launch = random() % 3; launch >= 0; --launch) {
    std::vector<Strip>& of_launch = strips.launches.emplace_back();
    for (int count = random() % 8; count > 0; --count) {
      const int64_t size = static_cast<int64_t>(random() % (random() % 2 == 0 ? 50 : 20000));
      const uint64_t dest = random() % 100000;
      of_launch.push_back({dest, random(), static_cast<int64_t>(random() % 1000), size,
                           static_cast<uint32_t>(random() % 4)});
    }
  }
  return strips;
}

TEST(WorkTable, PiecesAreTheStripsInOrderCutToTheSizeAskedFor) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 500; ++round) {
    const Strips strips = RandomStrips(random);
    const int64_t piece_bytes = int64_t{64} << random() % 8;
    const absl::StatusOr<WorkTable> table = TableOf(strips, piece_bytes, kPlenty);
    ASSERT_TRUE(table.ok());
    const std::vector<Piece> pieces = PiecesOf(*table);
    size_t next = 0;
    for (const std::vector<Strip>& launch : strips.launches) {
      for (const Strip& strip : launch) {
        const int64_t written = kWritten[strip.rule];
        for (int64_t done = 0; done < strip.size; ++next) {
          ASSERT_LT(next, pieces.size());
          const Piece& piece = pieces[next];
          ASSERT_EQ(piece.rule, strip.rule);
          ASSERT_EQ(piece.dest, strip.dest + done * written);
          ASSERT_GT(piece.size, 0u);
          ASSERT_LE(piece.size * kWidest[strip.rule], piece_bytes);
          if (strip.rule == 0) {
            ASSERT_EQ(piece.source, strip.source + done);
          } else if (strip.rule >= 2) {
            ASSERT_EQ(piece.source, strip.source);
            ASSERT_EQ(piece.first, strip.first + done);
          }
          done += piece.size;
          const bool meets = (strip.dest + done * written) % 128 < static_cast<uint64_t>(written);
          ASSERT_TRUE(done == strip.size || meets || piece_bytes < 128 * kWidest[strip.rule]);
        }
      }
    }
    ASSERT_EQ(next, pieces.size());
  }
}

TEST(WorkTable, AFillGoesOnWhereThePieceBeforeItEnded) {
  Strips strips;
  strips.rules = {RuleOf(PieceKind::kCopy), RuleOf(PieceKind::kFill)};
  strips.launches = {{{3, 0x0807060504030201, 0, 1000, 1}}};
  const absl::StatusOr<WorkTable> table = TableOf(strips, 256, kPlenty);
  ASSERT_TRUE(table.ok());
  for (const Piece& piece : PiecesOf(*table)) {
    EXPECT_EQ(piece.source & 0xff, (piece.dest - 3) % 8 + 1);
  }
}

TEST(WorkTable, APieceHasOneElementAtLeast) {
  Strips strips;
  strips.rules = {RuleOf(PieceKind::kRamp)};
  strips.launches = {{{1, 0, 0, 10, 0}}};
  const absl::StatusOr<WorkTable> table = TableOf(strips, 1, kPlenty);
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->launches.at(0).pieces, 10);
}

TEST(WorkTable, NothingToDoIsNoLaunch) {
  Strips strips;
  strips.rules = {RuleOf(PieceKind::kCopy)};
  strips.launches = {{}, {{0, 0, 0, 0, 0}}};
  const absl::StatusOr<WorkTable> table = TableOf(strips, 4096, kPlenty);
  ASSERT_TRUE(table.ok());
  EXPECT_TRUE(table->launches.empty());
}

// Of 4 KB pieces 2^31 are 8 TB; and a table has its limit long before.
TEST(WorkTable, WhatIsTooMuchIsRefusedBeforeThereIsATable) {
  Strips strips;
  strips.rules = {RuleOf(PieceKind::kCopy)};
  strips.launches = {{{0, 0, 0, int64_t{1} << 44, 0}}};
  absl::Status status = TableOf(strips, 4096, kPlenty).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("4294967296 pieces"));
  strips.launches = {{{0, 0, 0, int64_t{1} << 42, 0}}};
  status = TableOf(strips, 4096, int64_t{1} << 20).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("34359738496 bytes at the least"));
}

TEST(WorkTable, AStripIsAPieceHoweverShort) {
  Strips strips;
  strips.rules = {RuleOf(PieceKind::kCopy)};
  strips.launches.emplace_back();
  for (uint64_t i = 0; i < 1000; ++i) strips.launches[0].push_back({2 * i, 0, 0, 1, 0});
  const absl::Status status = TableOf(strips, 4096, 10000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("32128 bytes at the least"));
}

TEST(WorkTable, IsNeverLongerThanItMayBe) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 500; ++round) {
    const Strips strips = RandomStrips(random);
    const auto max_bytes = static_cast<int64_t>(random() % 4000);
    const absl::StatusOr<WorkTable> table = TableOf(strips, 256, max_bytes);
    if (table.ok() && !table->launches.empty()) {
      EXPECT_LE(static_cast<int64_t>(table->block.size()), max_bytes);
    } else if (!table.ok()) {
      const auto whole = TableOf(strips, 256, kPlenty);
      EXPECT_GT(static_cast<int64_t>(whole->block.size()), max_bytes);
    }
  }
}

}  // namespace
}  // namespace cpshard
