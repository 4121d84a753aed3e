// Copies within one process: what memory allows.
#pragma once

namespace cpshard::bench {

enum class CopyKind { kLibc, kStreamingStores };

// A client without a server (see Obey): a trip is one copy of a batch's bytes. Buffers are resident
// and rotate over 256 MiB, so that both ends are cold.
void CopyClient(int fd, CopyKind kind);

}  // namespace cpshard::bench
