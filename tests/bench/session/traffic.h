// Batches through a cpshardd, with and without a session.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace cpshard::bench {

inline constexpr int64_t kRanks = 8, kLoaders = 4;

// Moves batches of one size to a server and their shards back. Errors end the program.
class Traffic {
 public:
  virtual ~Traffic() = default;

  // Seconds for `batches`, in the middle of more.
  virtual double Seconds(int64_t batches) = 0;
};

// kLoaders streams of ShardBatches that each get the shards of all ranks back.
std::unique_ptr<Traffic> StatelessTraffic(const std::string& address, int64_t batch_bytes);

// kLoaders loaders push, kRanks ranks pull one shard each.
std::unique_ptr<Traffic> SessionTraffic(const std::string& address, int64_t batch_bytes);

// Of single calls on a connection that is otherwise idle, their median in seconds.
class Calls {
 public:
  virtual ~Calls() = default;
  virtual double Median(int64_t calls) = 0;
};

// GetServerInfo: a unary call with next to nothing in it.
std::unique_ptr<Calls> UnaryCalls(const std::string& address);
// A rank's pull of a step that is ready, of a shard of so many bytes.
std::unique_ptr<Calls> ReadyPulls(const std::string& address, int64_t shard_bytes);

}  // namespace cpshard::bench
