// A connected socket, to be handed to gRPC.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/address.h"

namespace cpshard {

// Waits until `fd` (if it is not negative) can be written, at most for `patience`; may return
// early. False: nobody wants the connection any more.
using Rest = absl::FunctionRef<bool(int fd, absl::Duration patience)>;

// The caller owns the descriptor, which does not block. A host name is looked up by the system,
// which may block for seconds; everything else waits in `rest`. Of several addresses of a host each
// is tried for 5 s.
// Unavailable: nobody listens there, or does not answer, or the name is not known; Cancelled:
// `rest` returned false.
absl::StatusOr<int> ConnectSocket(const Address& address, Rest rest);

}  // namespace cpshard
