#include "client/session/loader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/session/loader_impl.h"
#include "core/plan/status_macros.h"
#include "proto/session_checks.h"

namespace cpshard {
namespace {

absl::Status CheckSources(const std::map<std::string, StepSource*>& sources) {
  if (sources.empty()) {
    return absl::InvalidArgumentError("a loader of no data stream has nothing to push");
  }
  for (const auto& [name, source] : sources) {
    if (source == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("data stream '", name, "' has no source"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Loader>> Loader::Start(absl::string_view address,
                                                      LoaderOptions options,
                                                      std::map<std::string, StepSource*> sources) {
  if (options.incarnation == 0) options.incarnation = absl::ToUnixMicros(absl::Now());
  CPSHARD_RETURN_IF_ERROR(CheckSources(sources));
  LoaderHello hello{.group = options.group,
                    .loader = options.loader,
                    .num_loaders = options.num_loaders,
                    .incarnation = options.incarnation,
                    .generation_seen = options.generation};
  for (const auto& [name, source] : sources) hello.streams.push_back({.name = name});
  CPSHARD_RETURN_IF_ERROR(Check(hello));
  CPSHARD_ASSIGN_OR_RETURN(Address parsed, Address::Parse(address));
  CPSHARD_ASSIGN_OR_RETURN(std::unique_ptr<WakeupFd> wakeup, WakeupFd::Make());
  auto impl = std::make_shared<Impl>(std::move(parsed), std::move(wakeup), options,
                                     std::move(hello), std::move(sources));
  impl->StartThreads();
  return std::unique_ptr<Loader>(new Loader(std::move(impl)));
}

Loader::Loader(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Loader::~Loader() {
  Stop();
  impl_->Join();
}

absl::Status Loader::Wait() { return impl_->Wait(); }
void Loader::Stop() { impl_->End(absl::OkStatus()); }
LoaderStats Loader::stats() const { return impl_->stats(); }

}  // namespace cpshard
