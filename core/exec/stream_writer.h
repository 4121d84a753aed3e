// Streaming stores for a destination that is written in short pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/exec/copy.h"

namespace cpshard {

// Writes pieces to one destination past the cache. A piece that begins where the last one ended is
// joined to it, so that whole cache lines go out however short the pieces are: a streaming store of
// part of a line costs as much as one of several lines.
//
//   pieces        [-----------][-------------------][-----]
//   cache lines   |       |       |       |       |       |
//                                                 [kept-]   until the next Append, or Flush
class StreamWriter {
 public:
  // Copies like memcpy; the ranges must not overlap. `dest` may lie anywhere: where it does not
  // continue the last piece, what was kept is written first.
  void Append(std::byte* dest, const std::byte* source, size_t size) {
    if (dest != line_ + end_) MoveTo(dest);
    if (size < kLine) return AppendShort(source, size);
    if (end_ != 0) {
      // Fills the line; what is too much lands behind it and does no harm.
      std::memcpy(bytes_ + kLine + end_, source, kLine);
      const size_t taken = kLine - end_;
      end_ = kLine;
      WriteLine();
      source += taken;
      size -= taken;
    }
    const size_t kept = size % kLine;
    StreamCopy(line_, source, size - kept);
    line_ += size - kept;
    // Keeps the rest: it ends at `kept`, what is before it lands in front of the line.
    std::memcpy(bytes_ + kept, source + size - kLine, kLine);
    end_ = kept;
  }

  // Writes what was kept. Needed before anybody reads the destination or writes it by other means;
  // other threads need StreamCopyFence() besides.
  void Flush() {
    if (end_ != begin_) std::memcpy(line_ + begin_, bytes_ + kLine + begin_, end_ - begin_);
    begin_ = end_;
  }

 private:
  static constexpr size_t kLine = 64;

  void MoveTo(std::byte* dest) {
    Flush();
    begin_ = end_ = reinterpret_cast<uintptr_t>(dest) % kLine;
    line_ = dest - begin_;
  }

  void AppendShort(const std::byte* source, size_t size) {
    const size_t take = std::min(size, kLine - end_);
    std::memcpy(bytes_ + kLine + end_, source, take);
    end_ += take;
    if (end_ < kLine) return;
    WriteLine();
    end_ = size - take;
    std::memcpy(bytes_ + kLine, source + take, end_);
  }

  // Precondition: the line is full. Begins the next one.
  void WriteLine() {
    if (begin_ == 0) {
      StreamCopy(line_, bytes_ + kLine, kLine);
    } else {
      Flush();
    }
    line_ += kLine;
    begin_ = end_ = 0;
  }

  std::byte* line_ = nullptr;  // the cache line of the destination that is being filled
  size_t begin_ = 0;           // its bytes [begin_, end_) are kept ...
  size_t end_ = 0;
  alignas(kLine) std::byte bytes_[3 * kLine];  // ... here, in the middle third
};

}  // namespace cpshard
