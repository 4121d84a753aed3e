// The client of the subject: this project's stream client. Unlike the naive one it keeps freed
// memory, as the programs of this project do.
#pragma once

#include <string>

namespace cpshard::bench {

// See Obey. One batch, submitted again and again; a trip ends when its shards are there, each
// stream a window on memory that is the client's. Order::in_flight batches are under way at a time,
// on one stream.
void SubjectClient(int fd, const std::string& address);

}  // namespace cpshard::bench
