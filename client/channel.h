// What all channels to cpshardd have in common.
#pragma once

#include <grpcpp/support/channel_arguments.h>

namespace cpshard {

// A channel has a connection of its own. From the first call on gRPC stays up until the process
// ends: its last grpc_shutdown() may take 10 s (a thread in a poll).
grpc::ChannelArguments ChannelArguments();

}  // namespace cpshard
