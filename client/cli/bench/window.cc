#include "client/cli/bench/window.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cpshard::bench {

void Window::Submit() {
  flying_.push_back(
      {Clock::now(), stream_.Submit(work_.batches.At(submitted_++), work_.options, work_.cp_size)});
}

absl::StatusOr<ShardResult> Window::Next() {
  const Flying oldest = std::move(flying_.front());
  flying_.pop_front();
  {
    absl::MutexLock lock(&mutex_);
    if (stopped_) oldest.shards.Cancel();
    awaited_ = oldest.shards;
  }
  absl::StatusOr<ShardResult> result = oldest.shards.Wait();
  latencies_.push_back(std::chrono::duration<double>(Clock::now() - oldest.begin).count());
  absl::MutexLock lock(&mutex_);
  awaited_.reset();
  return result;
}

void Window::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  if (awaited_) awaited_->Cancel();
}

ServerWatch::ServerWatch(Window& window, pid_t server)
    : window_(window),
      server_(static_cast<int>(syscall(SYS_pidfd_open, server, 0))),
      over_(eventfd(0, EFD_CLOEXEC)),
      thread_([this] { Run(); }) {}

void ServerWatch::Run() {
  pollfd watched[] = {{.fd = server_, .events = POLLIN}, {.fd = over_, .events = POLLIN}};
  while (poll(watched, 2, -1) < 0) {
  }
  if (watched[0].revents != 0) window_.Stop();
}

ServerWatch::~ServerWatch() {
  eventfd_write(over_, 1);
  thread_.join();
  close(over_);
  if (server_ >= 0) close(server_);
}

}  // namespace cpshard::bench
