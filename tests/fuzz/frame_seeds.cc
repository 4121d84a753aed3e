#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/exec/shard_body.h"
#include "cpshard/v1/service.pb.h"
#include "proto/frames.h"
#include "tests/fuzz/seeds.h"

namespace cpshard {
namespace {

using std::string_literals::operator""s;

// The first byte says how the target cuts the message into pieces.
std::string Cut(char longest, const std::string& message) { return longest + message; }

BatchBegin BeginOf(const Batch& batch, const std::string& options) {
  BatchBegin begin;
  begin.options = *Options::FromJson(options);
  begin.cp_size = 2;
  begin.ranks = {0, 1};
  begin.spec = SpecOf(batch, 2);
  begin.places = PlaceTensors(begin.spec, {});
  for (const TensorPlace& place : begin.places) {
    begin.total_bytes = std::max(begin.total_bytes, place.offset + place.nbytes);
  }
  return begin;
}

// The batch buffer.
std::string BodyOf(const Batch& batch, const BatchBegin& begin) {
  std::string body(begin.total_bytes, '\0');
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    const Bytes bytes = batch.tensors[i].bytes();
    if (!bytes.empty()) std::memcpy(&body[begin.places[i].offset], bytes.data(), bytes.size());
  }
  return body;
}

// A shard of one stream whose layout leaves its arrays in the answer buffer.
v1::ShardFrame WithArrays() {
  v1::ShardFrame message;
  message.mutable_begin()->set_num_shards(1);
  message.mutable_begin()->set_total_bytes(192);
  v1::Shard* shard = message.add_shards();
  shard->mutable_layout()->set_cp_size(1);
  shard->mutable_layout()->mutable_input_row_shape();
  const auto add = [&](const char* name, std::initializer_list<int64_t> dims, int64_t offset,
                       int64_t nbytes) {
    v1::Entry* entry = shard->add_entries();
    entry->set_name(name);
    entry->set_dtype(v1::DTYPE_I64);
    entry->mutable_dims()->Add(dims.begin(), dims.end());
    entry->set_offset(offset);
    entry->set_nbytes(nbytes);
    entry->set_extent(v1::EXTENT_WHOLE);
  };
  add("labels", {1, 8}, 0, 64);
  add("_layout.input_row_shape", {2}, 64, 16);
  add("_layout.runs", {2, 2}, 128, 32);
  message.set_body("0123456789abcdef");
  return message;
}

}  // namespace

void WriteBatchFrames(const Seeds& seeds,
                      const std::vector<std::pair<std::string, Batch>>& batches) {
  char longest = 0;
  for (const auto& [name, batch] : batches) {
    const BatchBegin begin = BeginOf(batch, R"({"contiguous": {}, "padding_token_id": 0})");
    const std::string body(begin.total_bytes, 'b');
    BatchFrame frame;
    frame.batch_id = 7;
    frame.last = true;
    const std::string header = EncodeBatchFrame(frame, *EncodeBatchBegin(begin), body.size());
    seeds.Write("batch_frame", name, Cut(longest, header + body));
    longest += 5;
  }
  // Whole batches, read and sharded.
  for (const auto& [name, batch] : batches) {
    for (const char* layout : {"round_robin", "thd"}) {
      const BatchBegin begin =
          BeginOf(batch, absl::StrCat("{\"", layout, "\": {}, \"padding_token_id\": 0}"));
      BatchFrame frame;
      frame.last = true;
      const std::string body = BodyOf(batch, begin);
      const std::string header = EncodeBatchFrame(frame, *EncodeBatchBegin(begin), body.size());
      seeds.Write("batch_frame", absl::StrCat("whole_", layout, "_", name),
                  Cut(longest, header + body));
    }
    longest += 5;
  }
  const std::string id = "\x08\x07\x10\x02"s, body = "\x7a\x03one"s, flags = "\x30\x01\x40\x01"s;
  const auto write = [&](const char* name, char longest, const std::string& message) {
    seeds.Write("batch_frame", name, Cut(longest, message));
  };
  write("later", 3, id + "\x20\x80\x80\x80\x01"s + flags + "\x3d\x01\x02\x03\x04"s + body);
  write("cancel", 1, id + "\x40\x01"s);
  write("body_first", 2, body + id + flags);
  write("body_twice", 0, body + id + "\x7a\x02no"s);
  write("body_number", 0, id + "\x78\x05"s + body);
  write("body_long_length", 4, id + "\x7a\x83\x80\x80\x80\x00one"s);
  write("body_short", 1, id + "\x7a\x09one"s);
  write("body_large", 1, id + "\x7a\xff\xff\xff\xff\x07one"s);
  write("group", 1, "\x5b\x7a\x01x\x5c"s + body);
  write("groups", 9, std::string(100, '\x5b') + std::string(100, '\x5c'));
  write("begin_twice", 2, "\x1a\x02\x10\x01\x1a\x02\x28\x00"s + body);
}

void WriteShardFrames(const Seeds& seeds,
                      const std::vector<std::pair<std::string, Batch>>& batches) {
  BufferPool pool;
  const auto executor = MakeCpuExecutor();
  char longest = 0;
  for (const auto& [name, batch] : batches) {
    const BatchBegin begin = BeginOf(batch, R"({"round_robin": {}, "padding_token_id": 0})");
    auto planned = PlanBatch(*begin.options.MakeSharder(), batch, 2);
    if (!planned.ok()) continue;
    const auto plan = std::make_shared<const ShardPlan>(*std::move(planned));
    auto shards = ViewShards(*plan, batch, begin.ranks, *executor, pool);
    BatchReport report = ReportOf(InspectBatch(*plan, begin.spec, batch), begin.ranks);
    auto answer = EncodeAnswer(plan, begin.ranks, std::move(report), 1, *std::move(shards), pool);
    ShardFrame frame;
    frame.last = true;
    frame.credit = {64, 1};
    const std::string header = EncodeShardFrame(frame, answer->heads.Next(), 4);
    seeds.Write("shard_frame", name, Cut(longest, header + "body"));
    longest += 3;
  }
  ShardFrame failed, draining;
  failed.error = BatchError{absl::UnavailableError("the server is draining"), 500};
  draining.draining = true;
  seeds.Write("shard_frame", "failed", Cut(2, EncodeShardFrame(failed, "", 0)));
  seeds.Write("shard_frame", "draining", Cut(0, EncodeShardFrame(draining, "", 0)));
  seeds.Write("shard_frame", "arrays", Cut(6, WithArrays().SerializeAsString()));
}

}  // namespace cpshard
