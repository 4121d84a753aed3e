#include "client/cli/demo/exit_status.h"

#include <sys/wait.h>

#include "absl/strings/str_cat.h"

namespace cpshard::demo {

// The exit status is the number of the status code, as that of every cpshard.
absl::Status StatusOfEnd(const std::string& name, int wait_status, const std::string& words) {
  if (!WIFEXITED(wait_status)) {
    return absl::InternalError(
        absl::StrCat(name, " crashed (signal ", WTERMSIG(wait_status), "); it said: ", words));
  }
  const int exit_status = WEXITSTATUS(wait_status);
  if (exit_status == 0) return absl::OkStatus();
  const bool is_code = exit_status > 1 && exit_status <= 16;
  return absl::Status(
      is_code ? static_cast<absl::StatusCode>(exit_status) : absl::StatusCode::kInternal,
      absl::StrCat(name, " ended with exit status ", exit_status, "; it said: ", words));
}

}  // namespace cpshard::demo
