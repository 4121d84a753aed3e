// What all channels to cpshardd have in common.
#pragma once

#include <grpcpp/support/channel_arguments.h>

namespace cpshard {

// A channel has a connection of its own.
grpc::ChannelArguments ChannelArguments();

}  // namespace cpshard
