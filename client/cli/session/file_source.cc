#include "client/cli/session/file_source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/safetensors.h"
#include "core/plan/status_macros.h"

namespace cpshard {

FileSource::FileSource(std::vector<std::string> files, int64_t microbatches, int64_t passes,
                       Limits limits)
    : files_(std::move(files)), microbatches_(microbatches), passes_(passes), limits_(limits) {}

int64_t FileSource::num_steps() const {
  return static_cast<int64_t>(files_.size()) / microbatches_;
}

absl::Status FileSource::Check(int64_t loader, int64_t num_loaders) const {
  for (size_t k = 0; k < files_.size(); ++k) {
    if (static_cast<int64_t>(k) / microbatches_ % num_loaders != loader) continue;
    CPSHARD_RETURN_IF_ERROR(SafetensorsFile::Open(files_[k]).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<SourceStep>> FileSource::Make(int64_t pass, int64_t step) {
  if (step >= EndStep(pass)) return std::nullopt;
  SourceStep made;
  for (int64_t k = step * microbatches_; k < (step + 1) * microbatches_; ++k) {
    CPSHARD_ASSIGN_OR_RETURN(Batch batch, ReadBatch(files_[k], limits_, pool_));
    for (const Tensor& tensor : batch.tensors) bytes_ += tensor.buffer.size();
    made.microbatches.push_back(std::move(batch));
  }
  made.state = absl::StrCat(step);
  ++steps_;
  return made;
}

int64_t FileSource::EndStep(int64_t pass) { return pass < passes_ ? num_steps() : 0; }

absl::Status FileSource::Rewind(int64_t, int64_t, const std::optional<LoaderState>& state) {
  if (!state || state->state == absl::StrCat(state->step)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the state behind step ", state->step, " is '", state->state.substr(0, 32),
                   "', which no `cpshard push` gave; resume with the loader that did"));
}

}  // namespace cpshard
