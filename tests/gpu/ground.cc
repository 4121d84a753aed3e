#include "tests/gpu/ground.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "absl/strings/str_cat.h"
#include "core/exec/cuda.h"
#include "core/plan/status_macros.h"
#include "tests/gpu/anchors.h"

namespace cpshard {
namespace {

constexpr int64_t kPlaceAlignment = 256;

absl::StatusOr<Buffer> Pageable(int64_t bytes) {
  void* const block = operator new (bytes, std::align_val_t{kPlaceAlignment}, std::nothrow);
  if (block == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes of pageable memory"));
  }
  std::memset(block, 0, bytes);  // or its first walk would be one of page faults
  std::shared_ptr<void> owner(
      block, [](void* at) { operator delete (at, std::align_val_t{kPlaceAlignment}); });
  return Buffer(std::move(owner), static_cast<std::byte*>(block), bytes);
}

absl::StatusOr<Buffer> MemoryAt(Where where, int64_t bytes) {
  if (where == Where::kPageable) return Pageable(bytes);
  CPSHARD_ASSIGN_OR_RETURN(FixedPool pool, where == Where::kPinned ? MakePinnedPool(0, bytes)
                                                                   : MakeCudaMemoryPool(0, bytes));
  return pool.Allocate(bytes);
}

}  // namespace

absl::string_view Name(Where where) {
  return where == Where::kDevice ? "device" : where == Where::kPinned ? "pinned" : "pageable";
}

absl::Status Ground::Begin(const Job& job) {
  source_.resize(job.bytes());
  made_.assign(job.bytes(), std::byte{});
  uint64_t state = 1;
  for (size_t i = 0; i < source_.size(); ++i) {
    if (i % 8 == 0) state = state * 6364136223846793005 + 1442695040888963407;
    source_[i] = static_cast<std::byte>(state >> 8 * (i % 8));
  }
  for (Plot& plot : plots_) plot.has_sources = false;
  return MakeCpuExecutor()->Run(TasksOf(job, source_.data(), made_.data()));
}

int64_t Ground::Stride() const {
  return (static_cast<int64_t>(source_.size()) + kPlaceAlignment - 1) / kPlaceAlignment *
         kPlaceAlignment;
}

absl::StatusOr<Ground::Plot*> Ground::PlotAt(Where where) {
  Plot& plot = plots_[static_cast<int>(where)];
  const int64_t half = std::max(BytesOf(where), Stride());
  if (static_cast<int64_t>(plot.memory.size()) < 2 * half) {
    plot.memory = Buffer();
    CPSHARD_ASSIGN_OR_RETURN(plot.memory, MemoryAt(where, 2 * half));
    plot.has_sources = false;
  }
  return &plot;
}

absl::StatusOr<Places> Ground::PlacesFor(Where from, Where to) {
  CPSHARD_ASSIGN_OR_RETURN(Plot* const source, PlotAt(from));
  CPSHARD_ASSIGN_OR_RETURN(Plot* const dest, PlotAt(to));
  const auto bytes = static_cast<int64_t>(source_.size());
  const auto size = static_cast<int64_t>(std::min(source->memory.size(), dest->memory.size()));
  Places places{from, to, {}, {}, bytes, 1};
  for (int64_t i = 0; (i + 1) * Stride() <= size / 2; ++i) {
    places.sources.push_back(source->memory.data() + i * Stride());
    places.dests.push_back(dest->memory.data() + dest->memory.size() / 2 + i * Stride());
  }
  if (!source->has_sources) {
    const int64_t in_all = static_cast<int64_t>(source->memory.size()) / 2 / Stride();
    for (int64_t i = 0; i < in_all; ++i) {
      CPSHARD_RETURN_IF_ERROR(
          EnqueueCopy(source->memory.data() + i * Stride(), source_.data(), bytes));
    }
    CPSHARD_RETURN_IF_ERROR(WaitForDevice());
    source->has_sources = true;
  }
  return places;
}

absl::Status Ground::CheckCut(const Places& places) const {
  return Check(places, made_, "what the CPU's executor makes");
}

absl::Status Ground::CheckCopied(const Places& places) const {
  return Check(places, source_, "its source");
}

absl::Status Ground::Check(const Places& places, const std::vector<std::byte>& wanted,
                           absl::string_view what) const {
  std::vector<std::byte> found(wanted.size());
  for (size_t i = 0; i < places.dests.size(); ++i) {
    CPSHARD_RETURN_IF_ERROR(CopyNow(found.data(), places.dests[i], places.bytes));
    if (found == wanted) continue;
    const auto at = std::mismatch(found.begin(), found.end(), wanted.begin()).first - found.begin();
    return absl::InternalError(absl::StrCat("place ", i, " of ", places.dests.size(), ", byte ", at,
                                            " of ", places.bytes, ": not ", what));
  }
  return absl::OkStatus();
}

Walk PlainCopies(const Places& places, const Places& device) {
  return [places, device]() -> absl::Status {
    const bool both_ways = places.from != Where::kDevice && places.to != Where::kDevice;
    for (size_t n = 0; n < places.times * places.sources.size(); ++n) {
      const size_t i = n % places.sources.size();
      if (!both_ways) {
        CPSHARD_RETURN_IF_ERROR(EnqueueCopy(places.dests[i], places.sources[i], places.bytes));
        continue;
      }
      CPSHARD_RETURN_IF_ERROR(EnqueueCopy(device.dests[i], places.sources[i], places.bytes));
      CPSHARD_RETURN_IF_ERROR(
          EnqueueCopy(places.dests[i], device.sources[i], places.bytes, CopyStream::kOther));
    }
    return WaitForDevice();
  };
}

}  // namespace cpshard
