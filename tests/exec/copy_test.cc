// The copy past the cache writes what memcpy writes, wherever the ranges lie.
#include "core/exec/copy.h"

#include <gtest/gtest.h>

#include "tests/exec/executor_contract.h"

namespace cpshard {
namespace {

TEST(StreamCopy, WritesTheRangeAndNothingElseAtEveryAlignment) {
  for (size_t size : {0, 1, 15, 16, 63, 64, 65, 127, 128, 129, 1000}) {
    for (size_t from = 0; from <= 64; ++from) {
      const SourceMemory source(from, size);
      for (size_t i = 0; i < size; ++i) source.data()[i] = static_cast<std::byte>(i * 31 + from);
      for (size_t to = 0; to <= 64; ++to) {
        GuardedMemory dest(to, size);
        for (size_t i = 0; i < size; ++i) {
          dest.expected()[i] = static_cast<std::byte>(i * 31 + from);
        }
        StreamCopy(dest.data(), source.data(), size);
        StreamCopyFence();
        ASSERT_TRUE(dest.Matches()) << size << " bytes from +" << from << " to +" << to;
      }
    }
  }
}

}  // namespace
}  // namespace cpshard
