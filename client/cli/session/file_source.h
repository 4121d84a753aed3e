// The steps of `cpshard push`: of M microbatches a step, file k is microbatch k % M of step k / M.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/session/loader.h"
#include "core/batch/buffer.h"
#include "core/plan/spec.h"

namespace cpshard {

// A file is read when its step is made. Any step can be made at any time, so that its state is
// nothing but its number. Counters may be read from any thread.
class FileSource final : public StepSource {
 public:
  // Precondition: microbatches > 0 divides the number of files. `limits`: of the server.
  FileSource(std::vector<std::string> files, int64_t microbatches, int64_t passes, Limits limits);

  int64_t num_steps() const;

  // The files of loader i of L can be read, as far as their headers say. Errors as SafetensorsFile.
  absl::Status Check(int64_t loader, int64_t num_loaders) const;

  absl::StatusOr<std::optional<SourceStep>> Make(int64_t pass, int64_t step) override;
  int64_t EndStep(int64_t pass) override;
  // FailedPrecondition: a state that no FileSource gave.
  absl::Status Rewind(int64_t pass, int64_t step, const std::optional<LoaderState>& state) override;

  int64_t steps() const { return steps_; }
  int64_t bytes() const { return bytes_; }

 private:
  const std::vector<std::string> files_;
  const int64_t microbatches_, passes_;
  const Limits limits_;
  BufferPool pool_;
  std::atomic<int64_t> steps_ = 0, bytes_ = 0;  // made
};

}  // namespace cpshard
