// The bodies alone: no lane reads or writes outside its piece, all lanes together write every byte
// once, and every access is aligned.
#include "core/exec/device/bodies.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace cpshard {
namespace {

// Memory that is not there: notes what is touched, answers with the low bits of the address.
struct NotedMemory {
  uint64_t source = 0, source_end = 0, dest = 0, dest_end = 0;
  std::map<uint64_t, int> stored;  // byte to how often
  std::string wrong;

  void Round(uint32_t) {}

  template <typename T>
  T Load(uint64_t at) {
    if (at < source || at + sizeof(T) > source_end) Say("load outside", at, sizeof(T));
    if (at % sizeof(T) != 0) Say("misaligned load", at, sizeof(T));
    return T{};
  }
  template <typename T>
  void Store(uint64_t at, T) {
    if (at < dest || at + sizeof(T) > dest_end) Say("store outside", at, sizeof(T));
    if (at % sizeof(T) != 0) Say("misaligned store", at, sizeof(T));
    for (size_t i = 0; i < sizeof(T); ++i) ++stored[at + i];
  }
  void Say(const char* what, uint64_t at, size_t size) {
    if (wrong.empty())
      wrong = std::string(what) + " of " + std::to_string(size) + " at " + std::to_string(at);
  }
};

void ExpectInside(const Rule& rule, int64_t read, int64_t item, uint64_t source, uint64_t dest,
                  uint32_t size) {
  NotedMemory memory{source, source + read, dest, dest + size * item, {}, ""};
  const Piece piece{dest, source, 0, size, 0};
  for (uint32_t lane = 0; lane < kLanes; ++lane) RunPiece(memory, piece, &rule, lane);
  const std::string what = "source " + std::to_string(source) + ", dest " + std::to_string(dest) +
                           ", size " + std::to_string(size);
  ASSERT_EQ(memory.wrong, "") << what;
  ASSERT_EQ(memory.stored.size(), size * item) << what;
  for (const auto& [at, times] : memory.stored) ASSERT_EQ(times, 1) << what << " at " << at;
}

constexpr uint64_t kSource = 1 << 20, kDest = 1 << 21;

TEST(Bodies, ACopyStaysInsideItsBytesAtEveryAlignmentAndSize) {
  for (uint64_t source = 0; source < 16; ++source) {
    for (uint64_t dest = 0; dest < 16; ++dest) {
      for (const uint32_t size : {0, 1, 3, 4, 7, 8, 11, 15, 16, 17, 31, 33, 63, 130, 600, 2100}) {
        ExpectInside({}, size, 1, kSource + source, kDest + dest, size);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Bodies, AFillStaysInsideItsBytesAtEveryAlignmentAndSize) {
  Rule rule;
  rule.kind = PieceKind::kFill;
  for (uint64_t dest = 0; dest < 16; ++dest) {
    for (uint32_t size = 0; size < 70; ++size) {
      ExpectInside(rule, 0, 1, 0, kDest + dest, size);
      if (HasFatalFailure()) return;
    }
    ExpectInside(rule, 0, 1, 0, kDest + dest, 3000);
  }
}

TEST(Bodies, ElementsStayInsideTheirsAtEveryAlignment) {
  for (const DType dtype : kAllDTypes) {
    for (const PieceKind kind : {PieceKind::kDerive, PieceKind::kRamp, PieceKind::kContinue}) {
      Rule rule;
      rule.kind = kind;
      rule.dtype = dtype;
      rule.source_dtype = rule.cast = DType::kI32;
      const int64_t item = ItemSize(dtype);
      for (uint64_t offset = 0; offset < 8; ++offset) {
        const int64_t read = kind == PieceKind::kDerive ? 4 * 77 : item;
        ExpectInside(rule, read, item, kSource + offset, kDest + 7 - offset, 77);
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace cpshard
