#include "client/cli/bench/memcpy_anchor.h"

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "core/batch/buffer.h"
#include "core/plan/status_macros.h"

namespace cpshard::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::duration<double> kTime{0.3};

struct Blocks {
  Buffer source, dest;
};

absl::StatusOr<std::vector<Blocks>> MakeBlocks(int64_t size, BufferPool& pool) {
  std::vector<Blocks> all;
  for (int64_t bytes = 0; bytes < kColdBytes; bytes += 2 * size) {
    Blocks blocks;
    CPSHARD_ASSIGN_OR_RETURN(blocks.source, pool.Allocate(size));
    CPSHARD_ASSIGN_OR_RETURN(blocks.dest, pool.Allocate(size));
    std::memset(blocks.source.data(), 1, size);
    std::memset(blocks.dest.data(), 2, size);
    all.push_back(std::move(blocks));
  }
  return all;
}

// Makes the compiler believe that somebody reads the bytes.
void Keep(const std::byte* bytes) { asm volatile("" : : "g"(bytes) : "memory"); }

}  // namespace

absl::StatusOr<double> MemcpyBytesPerSecond(int64_t size) {
  BufferPool pool;  // of its own: its memory goes before that of the batches comes
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<Blocks> blocks, MakeBlocks(size, pool));
  int64_t copies = 0;
  std::chrono::duration<double> taken{};
  const Clock::time_point begin = Clock::now();
  while (taken < kTime || copies < 3) {
    const Blocks& next = blocks[copies++ % blocks.size()];
    std::memcpy(next.dest.data(), next.source.data(), size);
    Keep(next.dest.data());
    taken = Clock::now() - begin;
  }
  return static_cast<double>(size * copies) / taken.count();
}

}  // namespace cpshard::bench
