#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/help.h"
#include "proto/options.h"

namespace cpshard {
namespace {

constexpr char kProgram[] =
    R"(A batch is a safetensors file: input_ids, labels, position_ids, seq_lens, ...
are one tensor each, whole rows before they are cut.

Example:
  cpshard plan --cp 4 --options '{"round_robin": {}}' --len 64 --draw

cpshard COMMAND --help says more. docs/TUTORIAL.md is the first hour,
docs/LAYOUTS.md has every layout with its picture, docs/WIRE.md the names that
files and messages use.

Exit status: 0 done; 1 a difference was found (verify, demo); 64 a usage error;
else the gRPC number of the error that is printed, 3 for INVALID_ARGUMENT.)";

constexpr char kShard[] =
    R"(Writes DIR/rank0.safetensors, DIR/rank1.safetensors, ... and DIR/layouts.json,
which says where every token went. On an error nothing is written. The files are
the same to the byte with and without a server, and whoever does it; --executor
cuda is refused where there is no device.

Examples:
  cpshard shard --cp 2 --options '{"round_robin": {}}' --in batch.safetensors \
                --out shards
  cpshard shard --cp 2 --in batch.safetensors --out second --ranks 1 \
                --options '{"contiguous": {}, "padding_token_id": 0}'

Read on: docs/LAYOUTS.md, docs/TUTORIAL.md)";

constexpr char kGather[] =
    R"(Takes the shards of all ranks as `cpshard shard` writes them, or as a trainer
wrote them under the same names: a tensor computed from a shard goes back, too.

Examples, of the folder that `cpshard shard` wrote:
  cpshard gather --layouts shards/layouts.json --in shards --stream labels \
                 --out padded.safetensors
  cpshard gather --layouts shards/layouts.json --in shards --stream input_ids \
                 --trim --out ids.safetensors

Read on: docs/TUTORIAL.md)";

constexpr char kPlan[] =
    R"(Nothing is cut. Give a batch (--in), a row of made-up tokens (--len, with --docs
for the documents in it), or before packing lengths of documents alone (--docs).

Examples:
  cpshard plan --cp 4 --options '{"round_robin": {}}' --in batch.safetensors
  cpshard plan --cp 4 --options '{"contiguous": {}}' --len 64 --docs 40,24 \
               --draw --compare '{"round_robin": {}}'
  cpshard plan --cp 4 --options '{"thd": {}}' --docs 100,37

Read on: docs/LAYOUTS.md for layouts, their balance and what to choose)";

constexpr char kExplain[] =
    R"(Without --token or --slot: what the folder holds. Rows, tokens, ranks and slots
are counted from 0.

Examples, of the folder that `cpshard shard` wrote:
  cpshard explain --layouts shards/layouts.json --in shards
  cpshard explain --layouts shards/layouts.json --in shards --row 0 --token 5
  cpshard explain --layouts shards/layouts.json --in shards --rank 1 --slot 0

Read on: docs/TUTORIAL.md)";

constexpr char kVerify[] =
    R"(Cuts the batch itself and compares stream by stream. Exit status 0: all is
equal; 1: it is not, and the first difference is explained.

Example, of shards that a trainer wrote as DIR/rank0.safetensors, ...:
  cpshard verify --cp 2 --options '{"round_robin": {}}' --in batch.safetensors \
                 --ranks-dir shards

Read on: docs/TUTORIAL.md)";

constexpr char kPush[] =
    R"(File k is microbatch k % M of step k / M. Every loader of the group is given all
files and pushes the steps k with k % L = I. It stays until all ranks have read
all steps. Kill it at any time: the next one goes on where it was.

Example, of a server, a loader and two ranks:
  cpshardd --listen unix:push.sock > push.log 2>&1 & server=$!; \
    until grep -qs listening push.log; do sleep 0.1; done; \
    for r in 0 1; do cpshard pull --server unix:push.sock --group job/dp0 \
      --cp 2 --rank $r --options '{"round_robin": {}}' --out pulled & \
      pulls="$pulls $!"; done; \
    cpshard push --server unix:push.sock --group job/dp0 --loader 0/1 \
      batch.safetensors batch.safetensors; wait $pulls; kill $server

Read on: docs/TUTORIAL.md)";

constexpr char kPull[] =
    R"(Writes DIR/step0.mb0/rank0.safetensors for step 0, microbatch 0, rank 0, and so
on. All ranks may write to one DIR: each adds itself to layouts.json there, and
once all have, a folder is what `cpshard shard` writes of the batch. Later
passes are DIR/pass1.step0.mb0, ...

With --state FILE a rank that was killed goes on behind its last step, or only
ends its session if it has pulled all; --steps K are then K steps in all, over
all restarts. When the whole group starts again, say so by a higher
--generation.

At the end a rank waits for the other ranks, for --deadline at most; if they
take longer it ends with a notice and status 0.

Example, of a rank that says who it has waited for, as no loader has come:
  cpshardd --listen unix:pull.sock > pull.log 2>&1 & server=$!; \
    until grep -qs listening pull.log; do sleep 0.1; done; \
    cpshard pull --server unix:pull.sock --group job/dp0 --cp 1 --rank 0 \
      --options '{"round_robin": {}}' --deadline 1 --out none; \
    kill $server

Read on: docs/TUTORIAL.md)";

constexpr char kStatus[] =
    R"(Of every data stream: which steps are in memory and complete, who is waited for,
and the lag. That of a rank is how many steps it has consumed less than the one
that is furthest; of a loader, how many of its own steps it is behind. Of many,
those furthest behind are shown; --json has all.

Example:
  cpshardd --listen unix:status.sock > status.log 2>&1 & server=$!; \
    until grep -qs listening status.log; do sleep 0.1; done; \
    cpshard status --server unix:status.sock; kill $server

Read on: docs/TUTORIAL.md)";

constexpr char kDemo[] =
    R"(Starts a cpshardd of its own, packs text into batches, and has loader processes
stream them through it for every layout. Ends with EQUAL per layout, or with the
first difference and exit status 1. A loader that is killed (try kill -9) is
started again where it was.

--chaos: loader and rank processes with sessions instead. The server, a loader
and a rank are killed while the others go on, and every rank must still have had
every step once, in order, with the same bytes.

Examples:
  cpshard demo --max-bytes 100000
  cpshard demo --max-bytes 100000 --loaders 3 --kill-loader 2 story.txt
  cpshard demo --chaos --seed 7

Read on: README.md)";

constexpr char kBench[] =
    R"(Streams batches of made-up tokens to a server and takes all shards back, beside
a memory copy of the same size as the yardstick. Without --server it starts a
cpshardd of its own, with limits that --sizes and --inflight fit, and measures
its unix socket and its TCP port in turn.

Examples:
  cpshard bench --sizes 1 --seconds 0.2
  cpshard bench --sizes 0.1,1 --inflight 8 --seconds 0.2 --json bench.json

Read on: docs/PERFORMANCE.md, which also says what limits the rates)";

// What --options takes.
std::string LayoutsText() {
  std::string text =
      "--options is {\"LAYOUT\": {...}}, e.g. {\"round_robin\": {}}, where LAYOUT is\n";
  std::string line = " ";
  for (const std::string& layout : Options::BuiltLayouts()) {
    if (layout == "model") continue;
    if (line.size() + layout.size() + 2 > kHelpColumns) {
      absl::StrAppend(&text, line, "\n");
      line = " ";
    }
    absl::StrAppend(&line, " ", layout, ",");
  }
  return absl::StrCat(
      text, line,
      "\n  or model, which finds the layout from facts of a model. \"padding_token_id\": N\n"
      "beside it says what ids are padded with.\n\n");
}

constexpr char kCut[] = "Shard", kCheck[] = "Understand and check";
constexpr char kSession[] = "Loaders and ranks", kTry[] = "Try and measure";

struct Group {
  const char* name;
  std::vector<const char*> options;
};

struct Page {
  const char* command;
  const char* group;
  bool names_layouts;
  const char* text;
  std::vector<Group> options = {};
};

std::vector<Page> Pages() {
  return {
      {"shard", kCut, true, kShard},
      {"gather", kCut, false, kGather},
      {"plan",
       kCheck,
       true,
       kPlan,
       {{"Of what", {"--in", "--len", "--docs"}}, {"Picture", {"--draw", "--svg", "--compare"}}}},
      {"explain",
       kCheck,
       false,
       kExplain,
       {{"Shards", {"--layouts", "--in"}}, {"Which", {"--row", "--token", "--rank", "--slot"}}}},
      {"verify", kCheck, true, kVerify, {{"Files", {"--in", "--ranks-dir"}}}},
      {"push", kSession, false, kPush},
      {"pull", kSession, true, kPull},
      {"status", kSession, false, kStatus},
      {"demo", kTry, false, kDemo, {{"Sessions", {"--chaos", "--steps", "--seed"}}}},
      {"bench", kTry, false, kBench}};
}

}  // namespace

void AddHelpPages(CLI::App& app) {
  app.footer(kProgram);
  for (const Page& page : Pages()) {
    CLI::App* command = app.get_subcommand(page.command);
    command->group(page.group);
    command->footer(absl::StrCat(page.names_layouts ? LayoutsText() : "", page.text));
    for (const Group& group : page.options) {
      for (const char* option : group.options) command->get_option(option)->group(group.name);
    }
  }
}

}  // namespace cpshard
