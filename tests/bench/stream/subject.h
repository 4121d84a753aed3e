// The subject: a cpshardd of its own, with limits that the largest order fits, and this project's
// stream client.
// Unlike the naive pair both keep freed memory, as the programs of this project do.
#pragma once

#include <string>

#include "tests/bench/stream/process.h"

namespace cpshard::bench {

// The cpshardd that lies beside this program, on a free port and on a unix socket. One at a time:
// signals that end this process remove its folder.
class SubjectServer {
 public:
  explicit SubjectServer(int64_t max_inflight_bytes);  // of a stream
  SubjectServer(const SubjectServer&) = delete;
  SubjectServer& operator=(const SubjectServer&) = delete;
  ~SubjectServer();

  pid_t pid() const { return process_.pid(); }
  const std::string& tcp() const { return tcp_; }         // "127.0.0.1:43671"
  const std::string& unix_path() const { return unix_; }  // "unix:/..."

 private:
  const std::string folder_;
  const Process process_;
  std::string tcp_, unix_;
};

// See Obey. One batch, submitted again and again; a trip ends when its shards are there, each
// stream a window on memory that is the client's. Order::in_flight batches are under way at a time,
// on one stream.
void SubjectClient(int fd, const std::string& address);

}  // namespace cpshard::bench
