#include "cpshard/v1/service.pb.h"
#include "proto/codec.h"
#include "proto/frames.h"

namespace cpshard {
namespace {

void EncodeLimits(const ServerInfo& info, v1::Limits* limits) {
  limits->set_max_unary_bytes(kMaxUnaryBytes);
  limits->set_max_message_bytes(kMaxMessageBytes);
  limits->set_max_batch_bytes(info.limits.max_batch_bytes);
  limits->set_max_tensors(info.limits.max_tensors);
  limits->set_max_dims(info.limits.max_dims);
  limits->set_max_name_bytes(info.limits.max_name_bytes);
  limits->set_max_ranks(info.limits.max_ranks);
  limits->set_max_inflight_bytes(info.stream_limits.max_inflight_bytes);
  limits->set_max_inflight_batches(info.stream_limits.max_inflight_batches);
  limits->set_max_chunk_bytes(info.max_chunk_bytes);
  limits->set_max_header_bytes(kMaxHeaderBytes);
  v1::SessionLimits* sessions = limits->mutable_sessions();
  sessions->set_session_bytes(info.session_limits.session_bytes);
  sessions->set_replay_steps(info.session_limits.replay_steps);
  sessions->set_ahead_steps(info.session_limits.ahead_steps);
  sessions->set_rank_timeout_seconds(info.session_limits.rank_timeout_seconds);
  sessions->set_max_groups(info.session_limits.max_groups);
  sessions->set_max_data_streams(info.session_limits.max_data_streams);
  sessions->set_max_readers(info.session_limits.max_readers);
  sessions->set_max_loaders(info.session_limits.max_loaders);
  sessions->set_max_microbatches(info.session_limits.max_microbatches);
  sessions->set_max_wants(info.session_limits.max_wants);
}

void EncodeCounters(const Counters& counters, v1::Counters* message) {
  message->set_buffers_out(counters.buffers_out);
  message->set_bytes_out(counters.bytes_out);
  message->set_connections(counters.connections);
  message->set_streams(counters.streams);
  message->set_batches(counters.batches);
  message->set_batches_sharded(counters.batches_sharded);
  message->set_batches_refused(counters.batches_refused);
  message->set_streams_stalled(counters.streams_stalled);
  message->set_connections_refused(counters.connections_refused);
  message->set_sessions(counters.sessions);
  message->set_loaders(counters.loaders);
  message->set_session_bytes(counters.session_bytes);
  message->set_most_session_bytes(counters.most_session_bytes);
  message->set_pushed(counters.pushed);
  message->set_delivered(counters.delivered);
  message->set_duplicates(counters.duplicates);
  message->set_pushes_refused(counters.pushes_refused);
  message->set_digest_conflicts(counters.digest_conflicts);
  message->set_digest_changes(counters.digest_changes);
  message->set_seeks(counters.seeks);
  message->set_generations(counters.generations);
  message->set_pinned_bytes(counters.pinned_bytes);
  message->set_pinned_bytes_out(counters.pinned_bytes_out);
  message->set_unpinned_bytes_out(counters.unpinned_bytes_out);
  message->set_unpinned_blocks(counters.unpinned_blocks);
}

Counters DecodeCounters(const v1::Counters& message) {
  Counters counters;
  counters.buffers_out = message.buffers_out();
  counters.bytes_out = message.bytes_out();
  counters.connections = message.connections();
  counters.streams = message.streams();
  counters.batches = message.batches();
  counters.batches_sharded = message.batches_sharded();
  counters.batches_refused = message.batches_refused();
  counters.streams_stalled = message.streams_stalled();
  counters.connections_refused = message.connections_refused();
  counters.sessions = message.sessions();
  counters.loaders = message.loaders();
  counters.session_bytes = message.session_bytes();
  counters.most_session_bytes = message.most_session_bytes();
  counters.pushed = message.pushed();
  counters.delivered = message.delivered();
  counters.duplicates = message.duplicates();
  counters.pushes_refused = message.pushes_refused();
  counters.digest_conflicts = message.digest_conflicts();
  counters.digest_changes = message.digest_changes();
  counters.seeks = message.seeks();
  counters.generations = message.generations();
  counters.pinned_bytes = message.pinned_bytes();
  counters.pinned_bytes_out = message.pinned_bytes_out();
  counters.unpinned_bytes_out = message.unpinned_bytes_out();
  counters.unpinned_blocks = message.unpinned_blocks();
  return counters;
}

}  // namespace

void EncodeServerInfo(const ServerInfo& info, v1::GetServerInfoReply* message) {
  message->set_version(info.version);
  message->set_instance_id(info.instance_id);
  EncodeLimits(info, message->mutable_limits());
  for (const std::string& layout : info.layouts) message->add_layouts(layout);
  for (const std::string& capability : info.capabilities) message->add_capabilities(capability);
  message->set_executor(info.executor);
  message->set_executor_reason(info.executor_reason);
  EncodeCounters(info.counters, message->mutable_counters());
}

ServerInfo DecodeServerInfo(const v1::GetServerInfoReply& message) {
  ServerInfo info;
  info.version = message.version();
  info.instance_id = message.instance_id();
  const v1::Limits& limits = message.limits();
  info.limits.max_batch_bytes = limits.max_batch_bytes();
  info.limits.max_tensors = limits.max_tensors();
  info.limits.max_dims = limits.max_dims();
  info.limits.max_name_bytes = limits.max_name_bytes();
  info.limits.max_ranks = limits.max_ranks();
  info.stream_limits = {limits.max_inflight_bytes(), limits.max_inflight_batches()};
  const v1::SessionLimits& sessions = limits.sessions();
  info.session_limits = {sessions.session_bytes(),    sessions.replay_steps(),
                         sessions.ahead_steps(),      sessions.rank_timeout_seconds(),
                         sessions.max_groups(),       sessions.max_data_streams(),
                         sessions.max_readers(),      sessions.max_loaders(),
                         sessions.max_microbatches(), sessions.max_wants()};
  info.max_chunk_bytes = limits.max_chunk_bytes();
  info.layouts.assign(message.layouts().begin(), message.layouts().end());
  info.capabilities.assign(message.capabilities().begin(), message.capabilities().end());
  info.executor = message.executor();
  info.executor_reason = message.executor_reason();
  info.counters = DecodeCounters(message.counters());
  return info;
}

}  // namespace cpshard
