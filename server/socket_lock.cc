#include "server/socket_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cpshard {

absl::StatusOr<SocketLock> SocketLock::Acquire(const std::string& path) {
  if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("unix socket path '", path, "' has ", path.size(), " bytes; 1 ... ",
                     sizeof(sockaddr_un::sun_path) - 1, " are possible"));
  }
  struct stat info;
  if (lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", path, "' exists and is not a socket; choose another path"));
  }
  const std::string lock_path = path + ".lock";
  OwnedFd fd(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0660));
  if (!fd.ok()) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open the lock file '", lock_path, "'"));
  }
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("another server holds '", lock_path, "'; stop it or choose another path"));
  }
  return SocketLock(std::move(fd));
}

}  // namespace cpshard
