#include "server/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "core/plan/status_macros.h"
#include "server/connections.h"
#include "server/listener.h"
#include "server/log.h"

namespace cpshard {
namespace {

constexpr int kAcceptBurst = 64;  // then the other sockets have their turn
constexpr int kPauseMillis = 100;
constexpr absl::Duration kLogEvery = absl::Seconds(1);
// The kernel doubles it, so twice its default: a quarter fewer context switches (measured).
constexpr int kUnixSendBuffer = 212'992;

void Tune(int fd, bool is_unix, absl::Duration tcp_timeout) {
  if (is_unix) {
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kUnixSendBuffer, sizeof kUnixSendBuffer);
    return;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto millis = static_cast<unsigned int>(absl::ToInt64Milliseconds(tcp_timeout));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &millis, sizeof millis);
}

// Errors that belong to one connection and say nothing of the next; accept(2) lists them.
bool IsOfOneConnection(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPERM:
    case EPROTO:
    case ENOPROTOOPT:
    case EOPNOTSUPP:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
      return true;
    default:
      return false;
  }
}

// gRPC calls a connection that it was handed "fd:12".
std::optional<int> DescriptorOf(absl::string_view peer) {
  int fd;
  if (absl::ConsumePrefix(&peer, "fd:") && absl::SimpleAtoi(peer, &fd)) return fd;
  return std::nullopt;
}

// Lets one message through per kLogEvery.
class Pace {
 public:
  bool IsDue() {
    const absl::Time now = absl::Now();
    if (now < next_) return false;
    next_ = now + kLogEvery;
    return true;
  }

 private:
  absl::Time next_ = absl::InfinitePast();
};

}  // namespace

class Acceptor::Impl {
 public:
  explicit Impl(const AcceptorOptions& options)
      : max_connections_(options.max_connections),
        tcp_timeout_(options.tcp_timeout),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  ~Impl() {
    if (!thread_.joinable()) return;
    StopListening();
    connections_.ShutAll();
    Tell([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { quit_ = true; });
    thread_.join();
  }

  absl::Status Listen(const AcceptorOptions& options) {
    for (const std::string& address : options.listen) {
      CPSHARD_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener,
                               Listener::Open(address, options.socket_mode));
      addresses_.push_back(listener->address());
      listeners_.push_back(std::move(listener));
    }
    if (!wake_.ok() || connections_.fd() < 0) {
      return absl::ResourceExhaustedError("no file descriptors are left; raise their limit");
    }
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  const std::vector<std::string>& addresses() const { return addresses_; }
  Connections& connections() { return connections_; }
  int64_t refused() const { return refused_; }

  void Start(std::function<void(int fd)> take) {
    Tell([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { take_ = std::move(take); });
  }

  void StopListening() {
    Tell([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { stop_ = true; });
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&stopped_));
  }

 private:
  template <typename Change>
  void Tell(Change change) {
    {
      absl::MutexLock lock(&mutex_);
      change();
    }
    eventfd_write(wake_.get(), 1);
  }

  void Run() {
    while (true) {
      std::vector<pollfd> watched = {{wake_.get(), POLLIN}, {connections_.fd(), POLLIN}};
      for (const std::unique_ptr<Listener>& listener : listeners_) {
        if (!is_accepting_) break;
        for (const OwnedFd& socket : listener->sockets()) watched.push_back({socket.get(), POLLIN});
      }
      poll(watched.data(), watched.size(), -1);
      connections_.Reap();  // those that left make room for those that come
      if (!Obey()) return;
      for (const std::unique_ptr<Listener>& listener : listeners_) {
        if (!is_accepting_) break;
        for (const OwnedFd& socket : listener->sockets()) Accept(socket.get(), listener->is_unix());
      }
    }
  }

  // Does what others told the thread; false: it is to end.
  bool Obey() {
    eventfd_t ignored;
    eventfd_read(wake_.get(), &ignored);
    absl::MutexLock lock(&mutex_);
    if (stop_) listeners_.clear();
    stopped_ = stop_;
    is_accepting_ = take_ != nullptr;
    return !quit_;
  }

  void Accept(int listening, bool is_unix) {
    for (int i = 0; i < kAcceptBurst; ++i) {
      OwnedFd fd(accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.ok() && errno == EAGAIN) return;
      if (!fd.ok() && IsOfOneConnection(errno)) continue;
      if (!fd.ok()) return Pause(std::strerror(errno));
      if (connections_.size() >= max_connections_) {
        Refuse();
        continue;
      }
      Tune(fd.get(), is_unix, tcp_timeout_);
      const absl::Status added = connections_.Add(fd.get());
      if (!added.ok()) return Pause(added.message());
      take_(fd.Release());
    }
  }

  void Refuse() {
    ++refused_;
    if (!refusal_log_.IsDue()) return;
    LogError("connection closed: max_connections are open",
             {{"max_connections", absl::StrCat(max_connections_)},
              {"refused", absl::StrCat(refused())}});
  }

  // Descriptors or memory ran out; who wants to connect waits in the kernel's queue.
  void Pause(absl::string_view why) {
    if (failure_log_.IsDue()) {
      LogError("cannot accept; goes on trying",
               {{"err", std::string(why)}, {"connections", absl::StrCat(connections_.size())}});
    }
    pollfd wake{wake_.get(), POLLIN};
    poll(&wake, 1, kPauseMillis);
  }

  const int64_t max_connections_;
  const absl::Duration tcp_timeout_;
  const OwnedFd wake_;
  std::vector<std::string> addresses_;
  Connections connections_;
  std::atomic<int64_t> refused_ = 0;

  // The thread's own, once it runs.
  std::vector<std::unique_ptr<Listener>> listeners_;
  bool is_accepting_ = false;
  Pace refusal_log_, failure_log_;

  absl::Mutex mutex_;
  std::function<void(int fd)> take_;  // set under the mutex, once; then the thread's own
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool quit_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

Acceptor::Acceptor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Acceptor::~Acceptor() = default;

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(const AcceptorOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  CPSHARD_RETURN_IF_ERROR(impl->Listen(options));
  return std::unique_ptr<Acceptor>(new Acceptor(std::move(impl)));
}

const std::vector<std::string>& Acceptor::addresses() const { return impl_->addresses(); }

void Acceptor::Start(std::function<void(int fd)> take) { impl_->Start(std::move(take)); }

void Acceptor::StopListening() { impl_->StopListening(); }

void Acceptor::Shut(absl::string_view peer) {
  if (const auto fd = DescriptorOf(peer)) impl_->connections().Shut(*fd);
}

std::string Acceptor::Describe(absl::string_view peer) const {
  const auto fd = DescriptorOf(peer);
  const std::string known = fd ? impl_->connections().Describe(*fd) : "";
  return known.empty() ? std::string(peer) : known;
}

void Acceptor::ShutAll() { impl_->connections().ShutAll(); }

int64_t Acceptor::connections() const { return impl_->connections().size(); }

int64_t Acceptor::refused() const { return impl_->refused(); }

}  // namespace cpshard
