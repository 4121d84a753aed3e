// Calls: messages that are late but in order, and connections that break, which either side learns
// at a time of its own.
#include <algorithm>
#include <utility>

#include "tests/simulation/world.h"

namespace cpshard::simulation {

size_t World::Dial(int process) {
  Call& call = calls_.emplace_back();
  call.process = process;
  call.latency_us = 2 + scenario_.latency_us / 2 + random_.Below(scenario_.latency_us);
  if (LoaderAt(process) != nullptr) call.latency_us += GroupOf(process).loader_latency_us;
  call.write_us = 5 + random_.Below(100);
  return calls_.size() - 1;
}

void World::Send(size_t id, ToServer message) {
  Call& call = calls_[id];
  if (!call.client_alive) return;
  int64_t latency_us = Latency(call);
  if (LoaderModel* loader = LoaderAt(call.process); loader != nullptr && loader->slow) {
    latency_us += 3000;
  }
  call.opens = std::holds_alternative<OpenSession>(message);
  call.up.push_back(std::move(message));
  call.last_up_us = std::max(now_us_ + latency_us, call.last_up_us);
  At(call.last_up_us - now_us_, What::kUp, id);
}

void World::Answer(size_t id, ToClient message, int64_t not_before_us) {
  Call& call = calls_[id];
  call.down.push_back(std::move(message));
  call.last_down_us = std::max({now_us_ + Latency(call), not_before_us, call.last_down_us});
  At(call.last_down_us - now_us_, What::kDown, id);
}

void World::ArriveUp(size_t id) {
  Call& call = calls_[id];
  if (call.up.empty()) return;  // cut meanwhile
  ToServer message = std::move(call.up.front());
  call.up.pop_front();
  if (!call.server_alive) return;
  if (call.instance == 0) {
    if (server_ == nullptr) {
      call.server_alive = false;
      return At(Latency(call), What::kCutClient, id);
    }
    call.instance = instance_;
  }
  if (!call.refused) Serve(id, std::move(message));
}

void World::ArriveDown(size_t id) {
  Call& call = calls_[id];
  if (call.down.empty()) return;
  ToClient message = std::move(call.down.front());
  call.down.pop_front();
  if (call.client_alive) ToProcess(id, std::move(message));
}

void World::ToProcess(size_t id, ToClient message) {
  const int process = calls_[id].process;
  if (ReaderModel* reader = ReaderAt(process)) {
    if (!reader->alive) return;
    if (reader->frozen) {
      reader->inbox.emplace_back(id, std::move(message));
    } else {
      ToReader(*reader, id, std::move(message));
    }
    return;
  }
  LoaderModel& loader = *LoaderAt(process);
  if (!loader.alive) return;
  if (loader.frozen) {
    loader.inbox.emplace_back(id, std::move(message));
  } else {
    ToLoader(loader, id, std::move(message));
  }
}

void World::HangUp(size_t id) {
  Call& call = calls_[id];
  if (id == 0 || !call.client_alive) return;
  call.client_alive = false;
  call.down.clear();
  // Soon, with what is under way lost; or after it; or by a keepalive.
  const int64_t under_way_us = std::max<int64_t>(call.last_up_us - now_us_, 0);
  int64_t in_us = random_.Below(2 * call.latency_us);
  if (random_.OneIn(2)) in_us = std::max(in_us, under_way_us + 1);
  if (random_.OneIn(6)) in_us += random_.Below(8000);
  At(in_us, What::kCutServer, id);
}

void World::CutServer(size_t id) {
  Call& call = calls_[id];
  if (!call.server_alive) return;
  call.server_alive = false;
  call.unsent = 0;
  call.up.clear();
  At(Latency(call), What::kCutClient, id);
  if (server_ == nullptr || call.instance != instance_ || call.opens) return;
  // What it was pushing is lost, lands all the same, or is given up only afterwards.
  if (random_.OneIn(2)) {
    for (Landing& landing : landings_) {
      if (landing.call == id && !landing.over) Land(landing, true);
    }
  } else if (random_.OneIn(2)) {
    for (Landing& landing : landings_) {
      if (landing.call == id) landing.damaged = true;
    }
  }
  call.pinned.clear();
  ++operations_;
  server_->Disconnect(id, Now());
  AfterCall();
}

void World::CutClient(size_t id) {
  Call& call = calls_[id];
  if (!call.client_alive) return;
  call.client_alive = false;
  call.down.clear();
  ToProcess(id, Broken{});
}

}  // namespace cpshard::simulation
