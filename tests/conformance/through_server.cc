#include "tests/conformance/through_server.h"

#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "client/client.h"
#include "client/shard_stream.h"
#include "core/plan/status_macros.h"
#include "proto/options.h"

namespace cpshard::conformance {
namespace {

// A client of a server that has answered.
absl::StatusOr<std::shared_ptr<Client>> Reach(absl::string_view address) {
  CPSHARD_ASSIGN_OR_RETURN(
      std::unique_ptr<Client> client,
      Client::Connect(address, {.deadline = absl::Seconds(10), .wait_for_ready = true}));
  CPSHARD_RETURN_IF_ERROR(client->GetServerInfo().status());
  return std::shared_ptr<Client>(std::move(client));
}

template <typename Send>
Target OnWire(Send send) {
  return {.on_wire = true, .executor = nullptr, .shard = [send](const ShardCall& call) -> Answer {
            CPSHARD_ASSIGN_OR_RETURN(const Options options, Options::FromJson(call.options));
            CPSHARD_ASSIGN_OR_RETURN(ShardResult result, send(call, options));
            return AnswersOf(std::move(result));
          }};
}

}  // namespace

absl::StatusOr<Target> ThroughServer(absl::string_view address) {
  CPSHARD_ASSIGN_OR_RETURN(const std::shared_ptr<Client> client, Reach(address));
  return OnWire([client](const ShardCall& call, const Options& options) {
    return client->ShardBatch(call.batch, options, call.cp_size, {});
  });
}

absl::StatusOr<Target> ThroughStream(absl::string_view address) {
  CPSHARD_RETURN_IF_ERROR(Reach(address).status());
  CPSHARD_ASSIGN_OR_RETURN(std::unique_ptr<ShardStream> opened, ShardStream::Open(address));
  const std::shared_ptr<ShardStream> stream = std::move(opened);
  return OnWire([stream](const ShardCall& call, const Options& options) {
    return stream->Submit(call.batch, options, call.cp_size).Wait();
  });
}

}  // namespace cpshard::conformance
