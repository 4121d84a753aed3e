// Who is there, how far everybody is, who waits for whom.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/session/errors.h"
#include "server/session/group.h"

namespace cpshard {
namespace {

constexpr size_t kMaxNamed = 4;  // of those who are waited for

std::string Ago(absl::Time then, absl::Time now) {
  return absl::StrCat(absl::ToInt64Seconds(now - then), " s ago");
}

std::string ListOf(absl::string_view one, const std::vector<std::string>& names) {
  const std::vector<std::string> some(names.begin(),
                                      names.begin() + std::min(names.size(), kMaxNamed));
  return absl::StrCat(
      one, names.size() == 1 ? " " : "s ", absl::StrJoin(some, ", "),
      names.size() > kMaxNamed ? absl::StrCat(" and ", names.size() - kMaxNamed, " more") : "");
}

}  // namespace

std::string Group::WaitingFor(const Named& named, int64_t step, absl::Time now) const {
  const DataStream& stream = *named.stream;
  if (opened() && !AllSeated()) {
    std::vector<int64_t> seated(terms_->cp_size, 0);
    for (const auto& [name, reader] : readers_) ++seated[reader.cp_rank];
    std::vector<std::string> missing;
    for (int64_t rank = 0; rank < terms_->cp_size; ++rank) {
      if (seated[rank] < terms_->readers_per_rank) missing.push_back(absl::StrCat(rank));
    }
    return absl::StrCat(ListOf("rank", missing), " to open generation ", terms_->generation);
  }
  if (!stream.positioned()) {
    std::vector<std::string> closed, unknown;
    for (const auto& [name, reader] : readers_) {
      const bool waits = IsIn(reader, named) && !reader.standings.at(stream.name()).open;
      const bool behind = reader.standings.at(stream.name()).pass < stream.pass();
      if (waits || behind) closed.push_back(absl::StrCat(reader.cp_rank));
    }
    if (!closed.empty()) {
      return absl::StrCat(ListOf("rank", closed), " to open pass ", stream.pass(), " of ",
                          stream.name());
    }
    for (size_t i = 0; i < stream.seats().size(); ++i) {
      if (stream.seats()[i].awaited) unknown.push_back(absl::StrCat(i));
    }
    if (unknown.empty() && !opened()) return "its readers: it has been under way before";
    if (unknown.empty()) return absl::StrCat("any loader of ", stream.name());
    return absl::StrCat(ListOf("loader", unknown), " of ", stream.num_loaders(), " of ",
                        stream.name(), " to come");
  }
  const Window& window = stream.window();
  if (step >= window.frontier() && window.frontier() < window.granted_end()) {
    const int64_t owner = window.frontier() % stream.num_loaders();
    const LoaderSeat& seat = stream.seats()[owner];
    return absl::StrCat(Name(stream.At(window.frontier())), " from loader ", owner, " (",
                        seat.peer == 0 ? "no connection, " : "", "last seen ", Ago(seat.heard, now),
                        ")");
  }
  if (step >= window.frontier() && window.granted_end() < window.end()) {
    return absl::StrCat("memory: ", budget_.used(), " of ", budget_.total(), " bytes are in use");
  }
  if (step >= window.frontier()) {
    const Reader* slowest = nullptr;
    for (const auto& [name, reader] : readers_) {
      if (!IsIn(reader, named)) continue;
      if (slowest == nullptr || reader.standings.at(stream.name()).next_step <
                                    slowest->standings.at(stream.name()).next_step) {
        slowest = &reader;
      }
    }
    if (slowest == nullptr) return "any reader";
    return absl::StrCat("reader ", slowest->name, " of rank ", slowest->cp_rank, " to consume ",
                        Name(stream.At(slowest->standings.at(stream.name()).next_step)),
                        slowest->peer == 0 ? absl::StrCat(" (no connection, left ",
                                                          Ago(slowest->away_since, now), ")")
                                           : "");
  }
  if (WaitsForJob()) return absl::StrCat("the other groups of job ", terms_->job);
  return "";
}

GroupView Group::View(absl::Time now) const {
  GroupView view;
  view.group = name_;
  view.opened = opened();
  view.ended = ended_;
  view.failure = std::string(failure_.message());
  view.declared = declared();
  if (terms_ != nullptr) {
    view.generation = terms_->generation;
    view.cp_size = terms_->cp_size;
    view.executor = terms_->executor;
  }
  for (const auto& [name, reader] : readers_) {
    ReaderView& of = view.readers.emplace_back();
    of.reader = name;
    of.cp_rank = reader.cp_rank;
    of.incarnation = reader.incarnation;
    of.opened = true;
    of.connected = reader.peer != 0;
    of.closed = reader.closed;
    if (!of.connected) of.away_seconds = absl::ToDoubleSeconds(now - reader.away_since);
    of.wants = reader.wants;
    of.stall = reader.stall;
    of.elapsed_us = reader.elapsed_us;
    for (const auto& [stream, standing] : reader.standings) {
      of.streams.push_back(
          {stream, standing.pass, standing.open, standing.next_step, standing.delivered});
    }
  }
  for (const auto& [name, named] : streams_) {
    const DataStream& stream = *named.stream;
    const Window& window = stream.window();
    DataStreamView& of = view.streams.emplace_back();
    of.stream = name;
    of.pass = stream.pass();
    of.epoch = stream.epoch();
    of.end_step = stream.end_step();
    of.window_steps = window.end() - window.floor();
    if (stream.positioned()) {
      of.floor = window.floor();
      of.frontier = window.frontier();
      of.granted_steps = window.granted_end() - window.floor();
      for (int64_t step = window.floor(); step < window.granted_end(); ++step) {
        of.complete_steps += window.Find(step)->complete ? 1 : 0;
      }
    }
    of.used_bytes = window.account().used;
    of.guaranteed_bytes = window.account().guarantee;
    if (named.in_terms) of.max_step_bytes = options_.told_bytes(named.max_step_bytes);
    of.digest_changes = stream.digest_changes();
    of.notice = stream.notice();
    of.num_loaders = stream.num_loaders();
    for (int64_t i = 0; i < stream.num_loaders(); ++i) {
      const LoaderSeat& seat = stream.seats()[i];
      LoaderView& loader = of.loaders.emplace_back();
      loader.loader = i;
      loader.incarnation = seat.incarnation;
      loader.known = seat.known;
      loader.connected = seat.peer != 0;
      if (seat.known) loader.silent_seconds = absl::ToDoubleSeconds(now - seat.heard);
      if (!stream.positioned()) continue;
      int64_t step = window.floor();
      while (step % stream.num_loaders() != i ||
             (window.Find(step) != nullptr && window.Find(step)->complete)) {
        ++step;
      }
      loader.next_step = step;
    }
    if (terms_ == nullptr || !named.in_terms || named.over || ended_) continue;
    const bool ends = stream.end_step() && window.frontier() >= *stream.end_step();
    if (stream.positioned() && ends) continue;
    of.waiting_for = WaitingFor(named, window.frontier(), now);
  }
  return view;
}

}  // namespace cpshard
