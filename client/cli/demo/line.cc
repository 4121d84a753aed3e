#include "client/cli/demo/line.h"

#include <unistd.h>

#include <cerrno>

namespace cpshard::demo {

absl::Status WriteLine(int out, std::string line) {
  line += '\n';
  for (size_t written = 0; written < line.size();) {
    const ssize_t size = write(out, line.data() + written, line.size() - written);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return absl::FailedPreconditionError("nobody reads the reports of this process");
    written += size;
  }
  return absl::OkStatus();
}

void AwaitLine(int in) {
  for (char letter = 0; letter != '\n';) {
    const ssize_t size = read(in, &letter, 1);
    if (size == 0 || (size < 0 && errno != EINTR)) return;
  }
}

}  // namespace cpshard::demo
