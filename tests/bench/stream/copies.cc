#include "tests/bench/stream/copies.h"

#include <cstring>
#include <optional>

#include "core/exec/copy.h"
#include "tests/bench/measure.h"
#include "tests/bench/stream/process.h"

namespace cpshard::bench {
namespace {

constexpr int64_t kColdBytes = int64_t{256} << 20;  // touched before a buffer is used again

class Copies {
 public:
  explicit Copies(const TokenShape& shape)
      : shape_(shape),
        count_(kColdBytes / (2 * shape.bytes()) + 2),
        sources_(Resident(count_ * shape.bytes())),
        dests_(Resident(count_ * shape.bytes())) {}

  const TokenShape& shape() const { return shape_; }

  void Trip(CopyKind kind) {
    const int64_t offset = next_++ % count_ * shape_.bytes();
    std::byte* const dest = dests_.data() + offset;
    if (kind == CopyKind::kLibc) {
      std::memcpy(dest, sources_.data() + offset, shape_.bytes());
    } else {
      StreamCopy(dest, sources_.data() + offset, shape_.bytes());
      StreamCopyFence();
    }
    Keep(*dest);
  }

 private:
  const TokenShape shape_;
  const int64_t count_;
  const Buffer sources_, dests_;
  int64_t next_ = 0;
};

}  // namespace

void CopyClient(int fd, CopyKind kind) {
  std::optional<Copies> copies;
  Obey(fd, [&](const Order& order) {
    if (!copies || !(copies->shape() == order.shape)) copies.emplace(order.shape);
    return RunTrips(order, [&] { copies->Trip(kind); });
  });
}

}  // namespace cpshard::bench
