#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/arguments.h"
#include "client/cli/commands.h"
#include "client/rank_files.h"
#include "client/safetensors.h"
#include "core/exec/gather.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

struct Arguments {
  std::string layouts, in, stream, out, fill, executor;
  std::optional<int64_t> seq_axis;
  bool trim = false;
};

// For files that do not say (docs/WIRE.md).
int64_t DefaultAxis(const Tensor& tensor, const ShardLayout& layout, const std::string& name) {
  if (name == "position_ids" && tensor.spec.dims.size() == 3) return 2;
  return layout.input_row_shape ? 0 : 1;
}

int64_t LocalLen(const ShardLayout& layout) {
  int64_t length = 0;
  for (const Run& run : layout.runs) length += run.length;
  return length;
}

// Whether every rank holds the stream whole: the files say so; those of others are judged by their
// contents, when they have not the length of a shard on the axis (or no such axis, and none was
// asked for).
bool IsHeldWhole(const std::vector<std::optional<StreamCut>>& cuts,
                 const std::vector<Tensor>& parts, const ShardLayout& layout,
                 const Arguments& arguments, int64_t axis) {
  if (cuts.front()) return cuts.front()->extent != Extent::kLocal;
  const std::vector<int64_t>& dims = parts.front().spec.dims;
  const int64_t axes = dims.size();
  const int64_t at = axis < 0 ? axis + axes : axis;
  if (at < 0 || at >= axes) return !arguments.seq_axis && HeldWhole(parts).ok();
  return dims[at] != LocalLen(layout) && HeldWhole(parts).ok();
}

// Writes a file of its own beside the target first, so that the target is complete or as before.
absl::Status WriteStream(const std::string& path, const Tensor& tensor) {
  std::string partial = path + ".XXXXXX";
  const int fd = mkostemp(partial.data(), O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write beside '", path, "'"));
  const mode_t mask = umask(0);  // single-threaded here; the file gets a usual mode
  umask(mask);
  fchmod(fd, 0666 & ~mask);
  close(fd);
  absl::Status status = WriteSafetensors(partial, {tensor}, {});
  std::error_code error;
  if (status.ok()) {
    std::filesystem::rename(partial, path, error);
    if (error) {
      status = absl::ErrnoToStatus(error.value(), absl::StrCat("cannot write '", path, "'"));
    }
  }
  if (!status.ok()) std::filesystem::remove(partial, error);
  return status;
}

absl::Status GatherFiles(const Arguments& arguments) {
  CPSHARD_ASSIGN_OR_RETURN(const Place place, PlaceOf(arguments.executor));
  BufferPool pool({.blocks = place.blocks});
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<ShardLayout> layouts, ReadLayouts(arguments.layouts));
  if (layouts.empty()) return absl::InvalidArgumentError("the layouts file holds no layout");
  std::vector<Tensor> parts;
  std::vector<std::optional<StreamCut>> cuts;
  for (const ShardLayout& layout : layouts) {
    CPSHARD_ASSIGN_OR_RETURN(RankFileStream stream,
                             ReadRankStream(arguments.in, layout, arguments.stream, pool));
    parts.push_back(std::move(stream.tensor));
    cuts.push_back(stream.cut);
  }
  GatherOptions options;
  options.trim = arguments.trim;
  const int64_t axis = cuts.front() && cuts.front()->extent != Extent::kWhole
                           ? cuts.front()->seq_axis
                           : DefaultAxis(parts.front(), layouts.front(), arguments.stream);
  options.seq_axis = arguments.seq_axis.value_or(axis);
  if (!arguments.fill.empty()) options.fill = ParseNumber(arguments.fill);
  if (IsHeldWhole(cuts, parts, layouts.front(), arguments, options.seq_axis)) {
    CPSHARD_ASSIGN_OR_RETURN(const Tensor whole, HeldWhole(parts));
    return WriteStream(arguments.out, whole);
  }
  CPSHARD_ASSIGN_OR_RETURN(const Tensor full,
                           Gather(layouts, parts, options, *place.executor, pool));
  CPSHARD_RETURN_IF_ERROR(WriteStream(arguments.out, full));
  SayExecutor(arguments.executor, std::string(place.executor->name()), place.reason);
  return absl::OkStatus();
}

std::string CheckNumber(const std::string& text) {
  return ParseNumber(text) ? "" : absl::StrCat("'", text, "' is not a number");
}

}  // namespace

void AddGatherCommand(CLI::App& app, Command& run) {
  CLI::App* command = app.add_subcommand("gather", "put the shards of one stream back together");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("--layouts", arguments->layouts, "the layouts.json of the shards")
      ->required()
      ->type_name("FILE")
      ->group("Files");
  command->add_option("--in", arguments->in, "the folder of the shards")
      ->required()
      ->type_name("DIR")
      ->group("Files");
  command->add_option("--out", arguments->out, "safetensors file to write, with one tensor, NAME")
      ->required()
      ->type_name("FILE")
      ->group("Files");
  command->add_option("--stream", arguments->stream, "the tensor to put together, e.g. input_ids")
      ->required()
      ->type_name("NAME")
      ->group("Stream");
  command
      ->add_option(
          "--seq-axis", arguments->seq_axis,
          "the axis that was cut; negative from the end [default: what the files say, else "
          "1]")
      ->type_name("N")
      ->group("Stream");
  command->add_flag("--trim", arguments->trim, "back to the shape that was sent, without padding")
      ->group("Stream");
  command->add_option("--fill", arguments->fill, "with --trim: stands where a token was dropped")
      ->check(CLI::Validator(CheckNumber, "V"))
      ->group("Stream");
  DeclareExecutor(*command, arguments->executor,
                  "who does it; auto: cuda where a device can be used [default: cpu]");
  command->callback(
      [arguments, &run] { run = [arguments] { return Outcome{GatherFiles(*arguments)}; }; });
}

}  // namespace cpshard
