#include "server/session/sessions.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "server/session/close_call.h"
#include "server/session/errors.h"
#include "server/session/pull_call.h"
#include "server/session/push_call.h"
#include "server/session/stored_batch.h"
#include "server/stream/asked_stream.h"

namespace cpshard {
namespace {

DeliveryOptions OptionsOf(const SessionLimits& limits, std::vector<DeclaredGroup> groups,
                          const std::string& instance) {
  DeliveryOptions options;
  options.instance = instance;
  options.told_bytes = SentBytesOfStep;
  for (DeclaredGroup& group : groups) {
    for (DeclaredStream& stream : group.streams) {
      stream.max_step_bytes = MemoryOfStep(stream.max_step_bytes);
    }
  }
  options.groups = std::move(groups);
  options.budget_bytes = limits.session_bytes / 4 * 3;
  options.replay_steps = limits.replay_steps;
  options.ahead_steps = limits.ahead_steps;
  options.max_groups = limits.max_groups;
  options.max_streams = limits.max_data_streams;
  options.max_ranks = limits.max_readers;
  options.max_loaders = limits.max_loaders;
  options.max_microbatches = limits.max_microbatches;
  options.max_wants = limits.max_wants;
  options.rank_timeout = absl::Seconds(limits.rank_timeout_seconds);
  return options;
}

// What a group's batches will be planned with: refused now rather than with the first batch.
absl::Status CheckTerms(const OpenSession& open, const StreamContext& context) {
  if (open.cp_size > context.limits.max_ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cp_size is ", open.cp_size, ", over the server's max_ranks ", context.limits.max_ranks));
  }
  CPSHARD_RETURN_IF_ERROR(context.executors->Named(open.executor).status());
  CPSHARD_ASSIGN_OR_RETURN(const Options options, Options::FromBytes(open.options));
  return options.MakeSharder().status();
}

}  // namespace

absl::Status CheckGroups(const std::vector<DeclaredGroup>& groups, const SessionLimits& limits,
                         const Limits& of_batches) {
  const DeliveryOptions options = OptionsOf(limits, {}, "");
  if (static_cast<int64_t>(groups.size()) > options.max_groups) {
    return absl::InvalidArgumentError(absl::StrCat(groups.size(), " groups are declared, over ",
                                                   "max_groups ", options.max_groups));
  }
  int64_t wanted = 0;
  for (const DeclaredGroup& group : groups) {
    const auto wrong = [&](auto... text) {
      return absl::InvalidArgumentError(absl::StrCat("group '", group.group, "': ", text...));
    };
    if (group.cp_size > of_batches.max_ranks) {
      return wrong("cp_size is ", group.cp_size, ", over max_ranks ", of_batches.max_ranks);
    }
    if (static_cast<int64_t>(group.streams.size()) > options.max_streams) {
      return wrong(group.streams.size(), " streams; at most ", options.max_streams, " are allowed");
    }
    for (const DeclaredStream& stream : group.streams) {
      if (stream.num_loaders > options.max_loaders) {
        return wrong("stream '", stream.name, "' has ", stream.num_loaders, " loaders; at most ",
                     options.max_loaders, " are allowed");
      }
      const int64_t step = MemoryOfStep(stream.max_step_bytes);
      const int64_t steps = options.replay_steps + 2;
      if (step > (options.budget_bytes - wanted) / steps) {
        return wrong("stream '", stream.name, "' is guaranteed ", steps, " steps of ", step,
                     " bytes of memory each, beside ", wanted,
                     " of what is declared before it; "
                     "of session_bytes ",
                     limits.session_bytes, " there are ", options.budget_bytes,
                     " to guarantee: give it more, or smaller steps");
      }
      wanted += steps * step;
    }
  }
  return absl::OkStatus();
}

Sessions::Sessions(const StreamContext& context, const SessionLimits& limits,
                   std::vector<DeclaredGroup> groups, std::string instance)
    : pool_({.max_bytes = static_cast<size_t>(limits.session_bytes),
             .blocks = context.executors->blocks()}),
      context_(context),
      instance_(std::move(instance)),
      offered_(OptionsOf(limits, {}, "").budget_bytes > 0),
      hub_(SessionHub::Make(OptionsOf(limits, std::move(groups), instance_), context.run_later)) {
  context_.pool = &pool_;
}

Sessions::~Sessions() { EndLaterWork(); }

void Sessions::EndLaterWork() { hub_->Close(); }

absl::StatusOr<OpenedSession> Sessions::Open(OpenSession open) {
  CPSHARD_RETURN_IF_ERROR(CheckTerms(open, context_));
  for (ReaderStream& stream : open.streams) {
    stream.max_step_bytes = MemoryOfStep(stream.max_step_bytes);
  }
  CPSHARD_ASSIGN_OR_RETURN(OpenedSession opened, hub_->Do([&](auto& delivery, absl::Time now) {
    return delivery.Open(open, now);
  }));
  CPSHARD_ASSIGN_OR_RETURN(Executor * executor, context_.executors->Named(open.executor));
  opened.executor = std::string(executor->name());
  return opened;
}

absl::StatusOr<GroupView> Sessions::View(const std::string& group) {
  return hub_->Do([&](auto& delivery, absl::Time now) { return delivery.View(group, now); });
}

std::vector<GroupView> Sessions::Views() {
  return hub_->Do([](auto& delivery, absl::Time now) { return delivery.Views(now); });
}

TwoWayReactor* Sessions::Start(grpc::CallbackServerContext* call, CallOwner owner, CallWatch& watch,
                               const MakeFrameStream& make) {
  const auto reactor = TwoWayReactor::Start(call, context_, std::move(owner), make);
  watch.Add(reactor);
  return reactor.get();
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Sessions::Push(
    grpc::CallbackServerContext* call, CallOwner owner, CallWatch& watch) {
  return Start(call, std::move(owner), watch, [this](std::string, auto on_output) {
    return PushCall::Make(context_, hub_, instance_, std::move(on_output));
  });
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Sessions::Pull(
    grpc::CallbackServerContext* call, CallOwner owner, CallWatch& watch) {
  return Start(call, std::move(owner), watch, [this](std::string, auto on_output) {
    return PullCall::Make(context_, hub_, std::nullopt, std::move(on_output));
  });
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Sessions::Get(
    grpc::CallbackServerContext* call, CallOwner owner, CallWatch& watch, ParseGetShard parse) {
  return Start(call, std::move(owner), watch, [=, this](std::string, auto on_output) {
    const auto ask =
        [=, this](absl::Span<const Bytes> message) -> absl::StatusOr<std::shared_ptr<FrameStream>> {
      CPSHARD_ASSIGN_OR_RETURN(GetShard request, parse(message));
      return PullCall::Make(context_, hub_, std::move(request), on_output);
    };
    return std::make_shared<AskedStream>(ask, context_.stall, on_output);
  });
}

std::shared_ptr<CloseCall> Sessions::Close(SessionName session,
                                           std::function<void(const absl::Status&)> answer) {
  std::shared_ptr<CloseCall> call = CloseCall::Start(hub_, std::move(session), std::move(answer));
  absl::MutexLock lock(&mu_);
  std::erase_if(closing_, [](const auto& closing) { return closing.expired(); });
  closing_.push_back(call);
  if (draining_) RefuseClosing();
  return call;
}

void Sessions::Drain() {
  hub_->Do([](auto& delivery, absl::Time now) { delivery.Drain(now); });
  absl::MutexLock lock(&mu_);
  draining_ = true;
  RefuseClosing();
}

// Who closes would wait for the others; it has nothing to wait for.
void Sessions::RefuseClosing() {
  for (const std::weak_ptr<CloseCall>& weak : closing_) {
    const std::shared_ptr<CloseCall> call = weak.lock();
    if (call != nullptr) call->Answer(Draining());
  }
  closing_.clear();
}

void Sessions::Tick(absl::Time now) { hub_->Tick(now); }

void Sessions::AddCounters(Counters& counters) {
  const BufferPoolStats pool = pool_.stats();
  counters.buffers_out += static_cast<int64_t>(pool.buffers_out);
  counters.bytes_out += static_cast<int64_t>(pool.bytes_out);
  const DeliveryCounters sessions =
      hub_->Do([](auto& delivery, absl::Time) { return delivery.counters(); });
  counters.sessions = sessions.sessions;
  counters.loaders = sessions.loaders;
  counters.session_bytes = sessions.used_bytes;
  counters.most_session_bytes = sessions.most_used_bytes;
  counters.pushed = sessions.pushed;
  counters.delivered = sessions.delivered;
  counters.duplicates = sessions.duplicates;
  counters.pushes_refused = sessions.refused;
  counters.digest_conflicts = sessions.digest_conflicts;
  counters.digest_changes = sessions.digest_changes;
  counters.seeks = sessions.seeks;
  counters.generations = sessions.generations;
}

}  // namespace cpshard
