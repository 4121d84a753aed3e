// The memory over which a job is measured: it is done in one place after the other, in so many that
// none is still in a cache when its turn comes again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/batch/buffer.h"
#include "tests/gpu/jobs.h"
#include "tests/gpu/pairs.h"

namespace cpshard {

enum class Where { kDevice, kPinned, kPageable };
absl::string_view Name(Where where);

// The memory of one walk: `bytes` from sources[i] to dests[i], for every i, and all that so many
// times, or who waits in which way would show in what takes less than a few milliseconds.
struct Places {
  Where from = Where::kDevice, to = Where::kDevice;
  std::vector<std::byte*> sources, dests;
  int64_t bytes = 0;
  int times = 1;
  int64_t total() const { return times * bytes * static_cast<int64_t>(sources.size()); }
};

struct GroundSizes {
  int64_t device_bytes = int64_t{1} << 30;  // of all sources, and as many of all destinations
  int64_t host_bytes = int64_t{1} << 30;    // the same, pinned and pageable
};

// Not thread-safe. The memory lives as long as the ground does and is used again for every job.
class Ground {
 public:
  explicit Ground(const GroundSizes& sizes) : sizes_(sizes) {}

  // From now on, of this job. Internal: the CPU's executor refuses it.
  absl::Status Begin(const Job& job);

  // Sources that hold the same bytes, and destinations. ResourceExhausted, with the sizes: there is
  // no such memory. Else as MakePinnedPool, MakeCudaMemoryPool and EnqueueCopy.
  absl::StatusOr<Places> PlacesFor(Where from, Where to);

  // Whether all destinations hold what the CPU's executor makes of a source; or the source itself.
  // Internal, with the first that does not.
  absl::Status CheckCut(const Places& places) const;
  absl::Status CheckCopied(const Places& places) const;

 private:
  struct Plot {
    Buffer memory;             // the first half for sources
    bool has_sources = false;  // those of this job
  };
  int64_t BytesOf(Where where) const {
    return where == Where::kDevice ? sizes_.device_bytes : sizes_.host_bytes;
  }
  int64_t Stride() const;
  absl::StatusOr<Plot*> PlotAt(Where where);
  absl::Status Check(const Places& places, const std::vector<std::byte>& wanted,
                     absl::string_view what) const;

  const GroundSizes sizes_;
  Plot plots_[3];
  std::vector<std::byte> source_, made_;
};

// Copies by CUDA of all of the places' bytes the same way. Between host and host one direction of
// the bus carries the sources to the device while the other brings back others: `device` are as
// many places on it at least, which hold the same bytes.
Walk PlainCopies(const Places& places, const Places& device);

}  // namespace cpshard
