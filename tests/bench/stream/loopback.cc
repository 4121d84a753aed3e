#include "tests/bench/stream/loopback.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/bench/stream/process.h"

namespace cpshard::bench {
namespace {

constexpr char kCongestionControl[] = "/proc/sys/net/ipv4/tcp_congestion_control";

bool Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return !file.fail();
}

// Without these, files of this process would belong to nobody.
void MapThisUser(uid_t user, gid_t group) {
  Write("/proc/self/setgroups", "deny");
  Write("/proc/self/uid_map", absl::StrCat(user, " ", user, " 1"));
  Write("/proc/self/gid_map", absl::StrCat(group, " ", group, " 1"));
}

bool Unshare() {
  if (unshare(CLONE_NEWNET) == 0) return true;
  const uid_t user = getuid();
  const gid_t group = getgid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  MapThisUser(user, group);
  return true;
}

bool BringUpLoopback() {
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool up = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  if (fd >= 0) close(fd);
  return up;
}

}  // namespace

Loopback HostLoopback() {
  Loopback loopback;
  std::ifstream(kCongestionControl) >> loopback.congestion_control;
  return loopback;
}

Loopback EnterPrivateLoopback() {
  if (!Unshare()) return HostLoopback();
  if (!BringUpLoopback()) Fail("the loopback of the network namespace does not come up");
  Write(kCongestionControl, "reno");
  Loopback loopback = HostLoopback();  // read back: /proc shows this process's own network
  loopback.is_private = true;
  return loopback;
}

}  // namespace cpshard::bench
