// ListGroups and DumpGroup.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/session.pb.h"
#include "proto/error_details.h"
#include "proto/executor_codec.h"
#include "proto/field_checks.h"
#include "proto/replies.h"
#include "proto/session_codec.h"
#include "proto/session_parts.h"

namespace cpshard {
namespace {

void EncodeReader(const ReaderView& view, v1::ReaderView* message) {
  message->set_reader(view.reader);
  message->set_cp_rank(view.cp_rank);
  message->set_incarnation(view.incarnation);
  message->set_opened(view.opened);
  message->set_connected(view.connected);
  message->set_closed(view.closed);
  if (view.away_seconds) message->set_away_seconds(*view.away_seconds);
  for (const ReaderStreamView& stream : view.streams) {
    v1::ReaderStreamView* to = message->add_streams();
    to->set_stream(stream.stream);
    to->set_pass(stream.pass);
    to->set_open(stream.open);
    to->set_next_step(stream.next_step);
    if (stream.delivered >= 0) to->set_delivered(stream.delivered);
  }
  message->set_wants(view.wants);
  if (view.elapsed_us > 0) EncodeStall(view.stall, message->mutable_stall());
  message->set_elapsed_us(view.elapsed_us);
}

ReaderView DecodeReader(const v1::ReaderView& message) {
  ReaderView view;
  view.reader = message.reader();
  view.cp_rank = message.cp_rank();
  view.incarnation = message.incarnation();
  view.opened = message.opened();
  view.connected = message.connected();
  view.closed = message.closed();
  if (message.has_away_seconds()) view.away_seconds = message.away_seconds();
  for (const v1::ReaderStreamView& from : message.streams()) {
    view.streams.push_back({from.stream(), from.pass(), from.open(), from.next_step(),
                            from.has_delivered() ? from.delivered() : -1});
  }
  view.wants = message.wants();
  view.stall = DecodeStall(message.stall());
  view.elapsed_us = message.elapsed_us();
  return view;
}

void EncodeLoader(const LoaderView& view, v1::LoaderView* message) {
  message->set_loader(view.loader);
  message->set_incarnation(view.incarnation);
  message->set_known(view.known);
  message->set_connected(view.connected);
  if (view.silent_seconds) message->set_silent_seconds(*view.silent_seconds);
  if (view.next_step) message->set_next_step(*view.next_step);
}

LoaderView DecodeLoader(const v1::LoaderView& message) {
  LoaderView view;
  view.loader = message.loader();
  view.incarnation = message.incarnation();
  view.known = message.known();
  view.connected = message.connected();
  if (message.has_silent_seconds()) view.silent_seconds = message.silent_seconds();
  if (message.has_next_step()) view.next_step = message.next_step();
  return view;
}

void EncodeDataStream(const DataStreamView& view, v1::DataStreamView* message) {
  message->set_stream(view.stream);
  message->set_pass(view.pass);
  message->set_epoch(view.epoch);
  if (view.floor) message->set_floor(*view.floor);
  if (view.frontier) message->set_frontier(*view.frontier);
  if (view.end_step) message->set_end_step(*view.end_step);
  message->set_window_steps(view.window_steps);
  message->set_complete_steps(view.complete_steps);
  message->set_granted_steps(view.granted_steps);
  message->set_used_bytes(view.used_bytes);
  message->set_guaranteed_bytes(view.guaranteed_bytes);
  message->set_max_step_bytes(view.max_step_bytes);
  message->set_num_loaders(view.num_loaders);
  for (const LoaderView& loader : view.loaders) EncodeLoader(loader, message->add_loaders());
  message->set_waiting_for(view.waiting_for);
  message->set_digest_changes(view.digest_changes);
  message->set_notice(view.notice);
}

DataStreamView DecodeDataStream(const v1::DataStreamView& message) {
  DataStreamView view;
  view.stream = message.stream();
  view.pass = message.pass();
  view.epoch = message.epoch();
  if (message.has_floor()) view.floor = message.floor();
  if (message.has_frontier()) view.frontier = message.frontier();
  if (message.has_end_step()) view.end_step = message.end_step();
  view.window_steps = message.window_steps();
  view.complete_steps = message.complete_steps();
  view.granted_steps = message.granted_steps();
  view.used_bytes = message.used_bytes();
  view.guaranteed_bytes = message.guaranteed_bytes();
  view.max_step_bytes = message.max_step_bytes();
  view.num_loaders = message.num_loaders();
  for (const v1::LoaderView& loader : message.loaders()) {
    view.loaders.push_back(DecodeLoader(loader));
  }
  view.waiting_for = message.waiting_for();
  view.digest_changes = message.digest_changes();
  view.notice = message.notice();
  return view;
}

void EncodeView(const GroupView& view, v1::GroupView* message) {
  message->set_group(view.group);
  message->set_generation(view.generation);
  message->set_opened(view.opened);
  message->set_ended(view.ended);
  message->set_failure(view.failure);
  message->set_cp_size(view.cp_size);
  message->set_declared(view.declared);
  message->set_executor(EncodeExecutor(view.executor));
  for (const ReaderView& reader : view.readers) EncodeReader(reader, message->add_readers());
  for (const DataStreamView& stream : view.streams) {
    EncodeDataStream(stream, message->add_streams());
  }
}

// Shown to people as it is: only who it is of has to be there.
absl::StatusOr<GroupView> DecodeView(const v1::GroupView& message) {
  FieldChecks checks("view");
  checks.Name("group", message.group());
  CPSHARD_RETURN_IF_ERROR(checks.status());
  GroupView view;
  view.group = message.group();
  view.generation = message.generation();
  view.opened = message.opened();
  view.ended = message.ended();
  view.failure = message.failure();
  view.cp_size = message.cp_size();
  view.declared = message.declared();
  view.executor = DecodeExecutor(message.executor()).value_or(ExecutorKind::kAuto);
  for (const v1::ReaderView& reader : message.readers()) {
    view.readers.push_back(DecodeReader(reader));
  }
  for (const v1::DataStreamView& stream : message.streams()) {
    view.streams.push_back(DecodeDataStream(stream));
  }
  return view;
}

// Of views; `text` says of whom.
absl::Status CheckSize(size_t size, absl::string_view text, absl::string_view way_out) {
  if (size <= static_cast<size_t>(kMaxMessageBytes)) return absl::OkStatus();
  return WithDetails(absl::FailedPreconditionError(
                         absl::StrCat(text, " make an answer of ", size, " bytes, over the ",
                                      kMaxMessageBytes, " of a message: ", way_out)),
                     {.reason = "TOO_LARGE", .values = {{"bytes", absl::StrCat(size)}}});
}

}  // namespace

absl::StatusOr<std::string> DecodeDumpGroup(const v1::DumpGroupRequest& message) {
  FieldChecks checks("dump_group");
  checks.Name("group", message.group());
  CPSHARD_RETURN_IF_ERROR(checks.status());
  return message.group();
}

absl::Status CheckFits(const v1::ListGroupsReply& message) {
  return CheckSize(message.ByteSizeLong(),
                   absl::StrCat("the views of ", message.groups_size(), " groups"),
                   "ask for one of them (DumpGroup)");
}

absl::Status CheckFits(const v1::DumpGroupReply& message) {
  return CheckSize(message.ByteSizeLong(),
                   absl::StrCat("the readers and data streams of group ", message.group().group()),
                   "it fits with shorter names of readers and data streams");
}

void EncodeGroupViews(const std::vector<GroupView>& views, v1::ListGroupsReply* message) {
  for (const GroupView& view : views) EncodeView(view, message->add_groups());
}

absl::StatusOr<std::vector<GroupView>> DecodeGroupViews(const v1::ListGroupsReply& message) {
  std::vector<GroupView> views;
  for (const v1::GroupView& group : message.groups()) {
    CPSHARD_ASSIGN_OR_RETURN(GroupView view, DecodeView(group));
    views.push_back(std::move(view));
  }
  return views;
}

void EncodeGroupView(const GroupView& view, v1::DumpGroupReply* message) {
  EncodeView(view, message->mutable_group());
}

absl::StatusOr<GroupView> DecodeGroupView(const v1::DumpGroupReply& message) {
  return DecodeView(message.group());
}

}  // namespace cpshard
