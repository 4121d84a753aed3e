// A server to be measured: a cpshardd of its own.
#pragma once

#include <cstdint>
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

}  // namespace cpshard::bench
