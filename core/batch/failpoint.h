// Places at which a test lets the process die or stand still. Which of two files is linked decides
// whether they do anything (CMake: CPSHARD_FAILPOINTS, off by default).
//
//   CPSHARD_FAILPOINTS="after_ack=kill@3,before_open=stop@1"   (read once)
//
// The third time that after_ack is passed the process ends as by SIGKILL; the first time that
// before_open is, it stops as by SIGSTOP, until SIGCONT.
#pragma once

namespace cpshard {

// Thread-safe. `name`: small letters, digits, underscores.
void Failpoint(const char* name);

}  // namespace cpshard
