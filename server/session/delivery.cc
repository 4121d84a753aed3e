#include "server/session/delivery.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "server/session/errors.h"
#include "server/session/group.h"

namespace cpshard {
namespace {

// Of the deficit round robin over groups: what a turn adds.
constexpr int64_t kQuantum = int64_t{8} << 20;

struct LoaderCall {
  std::string group;
  int64_t loader = 0;
};

}  // namespace

class Delivery::Impl {
 public:
  explicit Impl(DeliveryOptions options)
      : options_(std::move(options)), budget_(options_.budget_bytes, options_.rules) {
    for (const DeclaredGroup& group : options_.groups) NewGroup(group.group).Declare(group);
  }

  ~Impl() { pins_.clear(); }

  static bool IsParked(const Group& group) { return !group.opened() && !group.declared(); }

  // The group, made if there is none. nullptr: there are too many. Those that are parked - only
  // loaders have named them - keep nobody from opening one.
  Group* Make(const std::string& name, bool parks) {
    Group* const there = Find(name);
    if (there != nullptr && (parks || !IsParked(*there))) return there;
    const auto like_it = std::count_if(groups_.begin(), groups_.end(), [&](const auto& entry) {
      return IsParked(*entry.second) == parks;
    });
    if (like_it >= options_.max_groups && !DropIdle(parks)) return nullptr;
    return there != nullptr ? there : &NewGroup(name);
  }

  Group& NewGroup(const std::string& name) {
    auto& group = groups_[name];
    group = std::make_unique<Group>(name, options_, budget_, outbox_, jobs_);
    group->draining = draining_;
    return *group;
  }

  Group* Find(const std::string& name) {
    const auto it = groups_.find(name);
    return it == groups_.end() ? nullptr : it->second.get();
  }

  // Room for another one: what has ended is kept only so that it is not begun again, what only
  // loaders have named only while they are there.
  bool DropIdle(bool parked) {
    for (auto it = groups_.begin(); it != groups_.end(); ++it) {
      const Group& group = *it->second;
      if (group.declared() || IsParked(group) != parked) continue;
      const bool idle = group.ended() || group.abandoned() || parked;
      if (!idle || HasCalls(it->first)) continue;
      deficits_.erase(it->first);
      hungry_.erase(it->first);
      groups_.erase(it);
      return true;
    }
    return false;
  }

  bool HasCalls(const std::string& group) const {
    return std::any_of(readers_.begin(), readers_.end(),
                       [&](const auto& entry) { return entry.second.terms->group == group; }) ||
           std::any_of(loaders_.begin(), loaders_.end(),
                       [&](const auto& entry) { return entry.second.group == group; }) ||
           std::any_of(pushes_.begin(), pushes_.end(),
                       [&](const auto& entry) { return entry.second.group->name() == group; });
  }

  // After every call that changes a group.
  void Follow(Group& group) {
    Keep(group);
    if (!outbox_.job_moved.empty()) {
      const std::string job = std::exchange(outbox_.job_moved, {});
      for (auto& [name, other] : groups_) {
        if (other->opened() && other->terms()->job == job) {
          other->ServeAll();
          Keep(*other);
        }
      }
    }
    Grant(group);
    next_tick_ = std::min(next_tick_, group.next_tick());
  }

  void Keep(Group& group) {
    for (Delivered& delivered : group.TakeDelivered()) {
      pins_[delivered.peer].push_back(std::move(delivered));
    }
  }

  // Groups of a job that run together have to name one number of them.
  absl::Status CheckJob(const OpenSession& open) const {
    if (open.job.empty()) return absl::OkStatus();
    for (const auto& [name, other] : groups_) {
      if (name == open.group || !other->HasReaders() || other->ended()) continue;
      const SessionTerms& terms = *other->terms();
      if (terms.job != open.job || terms.job_groups == open.job_groups) continue;
      return JobGroupsDiffer(open.job, open.group, open.job_groups, name, terms.job_groups);
    }
    return absl::OkStatus();
  }

  // What is guaranteed comes before credits of shared room that nothing has come for yet.
  void GrantGuaranteed(Group& group) {
    group.GrantGuaranteed();
    if (!options_.rules.guarantee_room || !group.LacksGuaranteed()) return;
    for (auto& [name, other] : groups_) {
      if (!other->TakeBackShared()) continue;
      if (other->WantsGrant()) hungry_.insert(name);
      group.GrantGuaranteed();
      if (!group.LacksGuaranteed()) return;
    }
  }

  void Grant(Group& group) {
    GrantGuaranteed(group);
    const bool came = group.WantsGrant() ? hungry_.insert(group.name()).second
                                         : (hungry_.erase(group.name()), false);
    if (hungry_.empty() || (!came && budget_.freed() == tried_at_)) return;
    GrantShared();
    tried_at_ = budget_.freed();
  }

  // What is nobody's guarantee goes round: a turn adds the quantum to what a group may take, a step
  // takes its bytes from it.
  void GrantShared() {
    for (size_t vain = 0; !hungry_.empty() && vain < hungry_.size();) {
      auto it = hungry_.upper_bound(turn_);
      if (it == hungry_.end()) it = hungry_.begin();
      turn_ = *it;
      Group& group = *groups_.at(turn_);
      int64_t& deficit = deficits_[turn_];
      deficit += kQuantum;
      bool in_vain = false;
      while (deficit > 0 && !in_vain) {
        const int64_t before = budget_.used();
        in_vain = !group.GrantShared();
        deficit -= budget_.used() - before;
      }
      if (in_vain) deficit = 0;  // who cannot use a turn does not save it up
      vain = in_vain ? vain + 1 : 0;
      if (!group.WantsGrant()) hungry_.erase(it);
    }
  }

  void Release(PeerId peer, const StepAddress& at, int64_t microbatch) {
    const auto it = pins_.find(peer);
    if (it == pins_.end()) return;
    auto& held = it->second;
    const auto found = std::find_if(held.begin(), held.end(), [&](const Delivered& one) {
      return one.step->step == at.step && one.step->pass == at.pass && one.stream == at.stream &&
             one.microbatch == microbatch;
    });
    if (found == held.end()) return;
    Window::Unpin(*found->step, budget_);
    held.erase(found);
    if (held.empty()) pins_.erase(it);
  }

  void ReleaseAll(PeerId peer) {
    const auto it = pins_.find(peer);
    if (it == pins_.end()) return;
    for (const Delivered& one : it->second) Window::Unpin(*one.step, budget_);
    pins_.erase(it);
  }

  struct Push {
    Group* group = nullptr;
    PushTicket ticket;
  };

  const DeliveryOptions options_;
  Outbox outbox_;
  Budget budget_;
  Jobs jobs_;
  std::map<std::string, std::unique_ptr<Group>> groups_;
  std::unordered_map<PeerId, ReaderCall> readers_;
  std::unordered_map<PeerId, LoaderCall> loaders_;
  std::unordered_map<PeerId, std::vector<Delivered>> pins_;
  std::unordered_map<uint64_t, Push> pushes_;
  std::map<std::string, int64_t> deficits_;
  std::set<std::string> hungry_;  // groups that want more credits
  std::string turn_;              // the group that had the last turn
  int64_t tried_at_ = -1;         // when there was nothing for them, as Budget::freed counts
  uint64_t next_push_ = 1;
  absl::Time next_tick_ = absl::InfiniteFuture();
  bool draining_ = false;
};

Delivery::Delivery(DeliveryOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Delivery::~Delivery() = default;

absl::StatusOr<OpenedSession> Delivery::Open(const OpenSession& open, absl::Time now) {
  if (impl_->draining_) return Draining();
  if (impl_->options_.budget_bytes == 0) return NoSessions();
  CPSHARD_RETURN_IF_ERROR(impl_->CheckJob(open));
  const bool is_new = impl_->Find(open.group) == nullptr;
  Group* group = impl_->Make(open.group, /*parks=*/false);
  if (group == nullptr) {
    return TooMany(absl::StrCat("group ", open.group, ": this server has ",
                                impl_->options_.max_groups,
                                " groups already, the most that it may (max_groups)"));
  }
  absl::StatusOr<OpenedSession> opened = group->Open(open, now);
  if (!opened.ok()) {
    if (is_new) impl_->groups_.erase(open.group);
    return opened;
  }
  impl_->Follow(*group);
  return opened;
}

absl::Status Delivery::Attach(PeerId peer, const SessionName& session, bool lasting,
                              absl::Time now) {
  Group* group = impl_->Find(session.group);
  if (group == nullptr) return UnknownGroup(session.group, impl_->options_.instance);
  CPSHARD_ASSIGN_OR_RETURN(ReaderCall call, group->Attach(peer, session, lasting));
  group->Seen(call, now);
  impl_->readers_[peer] = std::move(call);
  return absl::OkStatus();
}

void Delivery::Want(PeerId peer, const cpshard::Want& want, absl::Time now) {
  const auto it = impl_->readers_.find(peer);
  if (it == impl_->readers_.end()) return;
  Group& group = *impl_->Find(it->second.terms->group);
  group.OnWant(it->second, want, now);
  impl_->Follow(group);
}

absl::Status Delivery::Commit(PeerId peer, const cpshard::Commit& commit, absl::Time) {
  const auto it = impl_->readers_.find(peer);
  if (it == impl_->readers_.end()) return absl::OkStatus();
  Group& group = *impl_->Find(it->second.terms->group);
  const absl::Status status = group.OnCommit(it->second, commit);
  impl_->Follow(group);
  return status;
}

absl::Status Delivery::ClosePass(PeerId peer, const PassClosed& closed, absl::Time) {
  const auto it = impl_->readers_.find(peer);
  if (it == impl_->readers_.end()) return absl::OkStatus();
  Group& group = *impl_->Find(it->second.terms->group);
  const absl::Status status = group.OnPassClosed(it->second, closed);
  impl_->Follow(group);
  return status;
}

void Delivery::Sent(PeerId peer, const StepAddress& at, int64_t microbatch, absl::Time) {
  impl_->Release(peer, at, microbatch);
  const auto it = impl_->readers_.find(peer);
  if (it != impl_->readers_.end()) impl_->Follow(*impl_->Find(it->second.terms->group));
}

void Delivery::Close(PeerId peer, const SessionName& session, absl::Time) {
  Group* group = impl_->Find(session.group);
  if (group == nullptr || !group->opened()) {
    return impl_->outbox_.Say(peer, EndCall{UnknownGroup(session.group, impl_->options_.instance)});
  }
  group->OnClose(peer, session);
  impl_->Follow(*group);
}

absl::Status Delivery::Hello(PeerId peer, const LoaderHello& hello, absl::Time now) {
  const DeliveryOptions& options = impl_->options_;
  if (options.budget_bytes == 0) return NoSessions();
  if (hello.num_loaders < 1 || hello.num_loaders > options.max_loaders || hello.loader < 0 ||
      hello.loader >= hello.num_loaders) {
    return absl::InvalidArgumentError(
        absl::StrCat("loader ", hello.loader, " of ", hello.num_loaders,
                     "; a data stream has at least 1 and at "
                     "most ",
                     options.max_loaders,
                     " (max_loaders), from 0 on: let a loader push more of the "
                     "steps"));
  }
  if (hello.streams.empty() || static_cast<int64_t>(hello.streams.size()) > options.max_streams) {
    return DataStreamsOverLimit(hello.group, hello.streams.size(), options.max_streams);
  }
  if (impl_->draining_) return Draining();
  const bool is_new = impl_->Find(hello.group) == nullptr;
  Group* group = impl_->Make(hello.group, /*parks=*/true);
  if (group == nullptr) {
    return TooMany(absl::StrCat("group ", hello.group, ": loaders wait for ", options.max_groups,
                                " groups already that nobody has opened, the most that they may "
                                "(max_groups)"));
  }
  if (absl::Status status = group->Hello(peer, hello, now); !status.ok()) {
    if (is_new) impl_->groups_.erase(hello.group);
    return status;
  }
  impl_->loaders_[peer] = {hello.group, hello.loader};
  impl_->Follow(*group);
  return absl::OkStatus();
}

PushVerdict Delivery::BeginPush(PeerId peer, const PushHead& head, int64_t bytes, absl::Time now) {
  const auto it = impl_->loaders_.find(peer);
  if (it == impl_->loaders_.end()) return {};
  Group& group = *impl_->Find(it->second.group);
  const uint64_t push = impl_->next_push_++;
  auto ticket = group.BeginPush(peer, it->second.loader, head, bytes, push, now);
  impl_->Follow(group);
  if (!ticket) return {};
  impl_->pushes_[push] = {&group, *std::move(ticket)};
  return {push, group.terms()};
}

void Delivery::EndPush(uint64_t push, absl::StatusOr<LandedBatch> landed, absl::Time) {
  const auto it = impl_->pushes_.find(push);
  if (it == impl_->pushes_.end()) return;
  const Impl::Push ended = std::move(it->second);
  impl_->pushes_.erase(it);
  ended.group->EndPush(ended.ticket, std::move(landed));
  impl_->Follow(*ended.group);
}

absl::Status Delivery::End(PeerId peer, const EndOfStream& end, absl::Time) {
  const auto it = impl_->loaders_.find(peer);
  if (it == impl_->loaders_.end()) return absl::OkStatus();
  Group& group = *impl_->Find(it->second.group);
  const absl::Status status = group.DeclareEnd(peer, it->second.loader, end);
  impl_->Follow(group);
  return status;
}

void Delivery::Disconnect(PeerId peer, absl::Time now) {
  impl_->ReleaseAll(peer);
  if (const auto it = impl_->readers_.find(peer); it != impl_->readers_.end()) {
    Group& group = *impl_->Find(it->second.terms->group);
    group.ReaderGone(it->second, now);
    impl_->readers_.erase(it);
    impl_->Follow(group);
  }
  if (const auto it = impl_->loaders_.find(peer); it != impl_->loaders_.end()) {
    Group& group = *impl_->Find(it->second.group);
    group.LoaderGone(it->second.loader, peer, now);
    impl_->loaders_.erase(it);
    impl_->Follow(group);
  }
  for (auto& [name, group] : impl_->groups_) group->ForgetCall(peer);
}

void Delivery::Drain(absl::Time) {
  impl_->draining_ = true;
  for (auto& [name, group] : impl_->groups_) group->draining = true;
  for (const auto& [peer, loader] : impl_->loaders_) impl_->outbox_.Say(peer, DrainNotice{});
}

bool Delivery::HasMore(PeerId peer) const {
  const auto it = impl_->readers_.find(peer);
  return it != impl_->readers_.end() &&
         impl_->Find(it->second.terms->group)->HasMore(it->second.reader);
}

void Delivery::Tick(absl::Time now) {
  impl_->next_tick_ = absl::InfiniteFuture();
  for (auto& [name, group] : impl_->groups_) {
    if (group->next_tick() <= now) group->Tick(now);
    impl_->Follow(*group);
  }
}

absl::Time Delivery::NextTick() const { return impl_->next_tick_; }

std::vector<Output> Delivery::TakeOutputs() { return std::exchange(impl_->outbox_.outputs, {}); }
std::vector<Alert> Delivery::TakeAlerts() { return std::exchange(impl_->outbox_.alerts, {}); }

absl::StatusOr<GroupView> Delivery::View(const std::string& group, absl::Time now) const {
  const Group* of = impl_->Find(group);
  if (of == nullptr) return UnknownGroup(group, impl_->options_.instance);
  return of->View(now);
}

std::vector<GroupView> Delivery::Views(absl::Time now) const {
  std::vector<GroupView> views;
  for (const auto& [name, group] : impl_->groups_) views.push_back(group->View(now));
  return views;
}

DeliveryCounters Delivery::counters() const {
  DeliveryCounters counters = impl_->outbox_.counters;
  for (const auto& [peer, call] : impl_->readers_) counters.sessions += call.lasting ? 1 : 0;
  counters.loaders = static_cast<int64_t>(impl_->loaders_.size());
  counters.used_bytes = impl_->budget_.used();
  counters.most_used_bytes = impl_->budget_.most_used();
  return counters;
}

}  // namespace cpshard
