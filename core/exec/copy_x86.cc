// StreamCopy for x86-64. SSE2 is part of the base instruction set, so no dispatch is needed.
#include <emmintrin.h>

#include <cstdint>
#include <cstring>

#include "core/exec/copy.h"

namespace cpshard {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPrefetch = 512;  // bytes ahead; short runs end before the hardware gets going

void StreamLine(std::byte* dest, const std::byte* source) {
  const __m128i* from = reinterpret_cast<const __m128i*>(source);
  __m128i* to = reinterpret_cast<__m128i*>(dest);
  const __m128i a = _mm_loadu_si128(from);
  const __m128i b = _mm_loadu_si128(from + 1);
  const __m128i c = _mm_loadu_si128(from + 2);
  const __m128i d = _mm_loadu_si128(from + 3);
  _mm_stream_si128(to, a);
  _mm_stream_si128(to + 1, b);
  _mm_stream_si128(to + 2, c);
  _mm_stream_si128(to + 3, d);
}

}  // namespace

void StreamCopy(std::byte* dest, const std::byte* source, size_t size) {
  const size_t misaligned = reinterpret_cast<uintptr_t>(dest) % kLine;
  if (misaligned != 0) {
    const size_t head = kLine - misaligned < size ? kLine - misaligned : size;
    std::memcpy(dest, source, head);
    dest += head;
    source += head;
    size -= head;
  }
  while (size >= kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(source) + kPrefetch, _MM_HINT_NTA);
    StreamLine(dest, source);
    dest += kLine;
    source += kLine;
    size -= kLine;
  }
  if (size > 0) std::memcpy(dest, source, size);
}

void StreamCopyFence() { _mm_sfence(); }

}  // namespace cpshard
