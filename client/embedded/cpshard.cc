// The C interface: pointers to values and back, statuses to codes and texts. Decides nothing.
#include "client/embedded/cpshard.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "client/embedded/embedded_plan.h"
#include "client/embedded/stream_cut.h"
#include "client/verify/report.h"
#include "core/plan/status_macros.h"
#include "proto/options.h"

struct cpshard_plan {
  std::unique_ptr<cpshard::embedded::EmbeddedPlan> plan;
};

namespace cpshard::embedded {
namespace {

// Allocates nothing but the text itself: memory may be what is missing.
int Fail(absl::StatusCode code, absl::string_view text, char** error) {
  if (error != nullptr) {
    *error = static_cast<char*>(std::malloc(text.size() + 1));
    if (*error != nullptr) {
      std::memcpy(*error, text.data(), text.size());
      (*error)[text.size()] = '\0';
    }
  }
  return static_cast<int>(code);
}

// Runs fn() -> absl::Status. No exception leaves the library.
template <typename Fn>
int Call(char** error, Fn fn) {
  try {
    const absl::Status status = fn();
    return status.ok() ? 0 : Fail(status.code(), status.message(), error);
  } catch (const std::bad_alloc&) {
    return Fail(absl::StatusCode::kResourceExhausted, "the system has no memory for it", error);
  } catch (const std::exception& failure) {
    return Fail(absl::StatusCode::kInternal, failure.what(), error);
  }
}

// An argument that must not be null; one of an array of `count` elements may be where that is 0.
struct Argument {
  const char* name;
  const void* pointer;
  size_t count = 1;
};

absl::Status CheckGiven(std::initializer_list<Argument> arguments) {
  for (const Argument& argument : arguments) {
    if (argument.pointer != nullptr || argument.count == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("argument '", argument.name, "' is null"));
  }
  return absl::OkStatus();
}

// A copy that cpshard_free takes, and that is freed here unless it is handed over.
class Copy {
 public:
  Copy(const void* data, size_t size) : data_(size > 0 ? std::malloc(size) : nullptr), size_(size) {
    if (size > 0 && data_ == nullptr) throw std::bad_alloc();
    if (size > 0) std::memcpy(data_.get(), data, size);
  }
  explicit Copy(const std::string& text) : Copy(text.data(), text.size()) {}

  // `bytes` may be null: not wanted.
  void HandTo(cpshard_bytes* bytes) && {
    if (bytes != nullptr) *bytes = {data_.release(), size_};
  }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  std::unique_ptr<void, Free> data_;
  size_t size_;
};

absl::Status Give(const void* data, size_t size, cpshard_bytes* bytes) {
  if (bytes != nullptr) Copy(data, size).HandTo(bytes);
  return absl::OkStatus();
}

absl::Status Give(const std::string& text, cpshard_bytes* bytes) {
  return Give(text.data(), text.size(), bytes);
}

absl::Status Give(const std::vector<Run>& runs, cpshard_bytes* bytes) {
  static_assert(sizeof(Run) == 2 * sizeof(int64_t));  // source, length: a row of [n, 2]
  return Give(runs.data(), runs.size() * sizeof(Run), bytes);
}

absl::string_view View(const void* data, size_t size) {
  return {static_cast<const char*>(data), size};
}

With WithOf(uint32_t flags) {
  return {.digest = (flags & CPSHARD_WITH_DIGEST) != 0,
          .totals = (flags & CPSHARD_WITH_TOTALS) != 0,
          .arrays = (flags & CPSHARD_WITH_ARRAYS) != 0 ? Arrays::kValues : Arrays::kShapes};
}

absl::Status GiveArray(const ShardLayout& layout, int32_t array, cpshard_bytes* values) {
  const IntArray* asked = nullptr;
  switch (array) {
    case CPSHARD_RUNS:
      return Give(layout.runs, values);
    case CPSHARD_INDICES:
      if (layout.local_token_global_indices) asked = &*layout.local_token_global_indices;
      break;
    case CPSHARD_POSITIONS:
      if (layout.input_token_stream_positions) asked = &*layout.input_token_stream_positions;
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("a layout has no array ", array));
  }
  if (asked == nullptr) return Give(nullptr, 0, values);
  return Give(asked->values.data(), asked->values.size() * sizeof(int64_t), values);
}

int32_t ExtentNumber(Extent extent) {  // cpshard.v1.Extent
  return extent == Extent::kLocal ? 1 : extent == Extent::kPadded ? 2 : 3;
}

cpshard_cut ToC(const TensorCut& cut) {
  const StreamPlan& stream = *cut.stream;
  return {.source = cut.view->source.c_str(),
          .extent = ExtentNumber(stream.extent),
          .axis = stream.axis,
          .batch_axis = stream.batch_axis,
          .broadcast = cut.view->how == ViewOf::How::kBroadcastRow ? 1 : 0,
          .rows = cut.rows,
          .chunks = cut.chunks,
          .dims = stream.dims.data(),
          .num_dims = stream.dims.size(),
          .fill = stream.fill.value.bits};
}

}  // namespace
}  // namespace cpshard::embedded

using namespace cpshard;            // NOLINT(build/namespaces): the functions below are C's
using namespace cpshard::embedded;  // NOLINT(build/namespaces)

uint32_t cpshard_abi_version(void) { return CPSHARD_ABI_VERSION; }

void cpshard_free(void* data) { std::free(data); }

int cpshard_options_from_json(const char* json, size_t size, cpshard_bytes* message, char** error) {
  return Call(error, [&]() -> absl::Status {
    CPSHARD_RETURN_IF_ERROR(CheckGiven({{"json", json, size}}));
    CPSHARD_ASSIGN_OR_RETURN(const Options options, Options::FromJson(View(json, size)));
    return Give(options.ToBytes(), message);
  });
}

int cpshard_needs(const void* request, size_t size, cpshard_bytes* reply, char** error) {
  return Call(error, [&]() -> absl::Status {
    CPSHARD_RETURN_IF_ERROR(CheckGiven({{"request", request, size}}));
    CPSHARD_ASSIGN_OR_RETURN(const std::string message, NeedsOf(View(request, size)));
    return Give(message, reply);
  });
}

int cpshard_plan_create(const void* request, size_t size, const void* const* tensors,
                        size_t num_tensors, cpshard_plan** plan, char** error) {
  return Call(error, [&]() -> absl::Status {
    CPSHARD_RETURN_IF_ERROR(CheckGiven(
        {{"request", request, size}, {"tensors", tensors, num_tensors}, {"plan", plan}}));
    CPSHARD_ASSIGN_OR_RETURN(auto made,
                             EmbeddedPlan::Make(View(request, size), {tensors, num_tensors}));
    *plan = new cpshard_plan{std::move(made)};
    return absl::OkStatus();
  });
}

void cpshard_plan_free(cpshard_plan* plan) { delete plan; }

int cpshard_plan_reply(const cpshard_plan* plan, const int64_t* ranks, size_t num_ranks,
                       uint32_t with, cpshard_bytes* reply, char** error) {
  return Call(error, [&]() -> absl::Status {
    CPSHARD_RETURN_IF_ERROR(CheckGiven({{"plan", plan}, {"ranks", ranks, num_ranks}}));
    CPSHARD_ASSIGN_OR_RETURN(const std::string message,
                             plan->plan->Reply({ranks, num_ranks}, WithOf(with)));
    return Give(message, reply);
  });
}

int cpshard_plan_shard(const cpshard_plan* plan, int64_t rank, uint32_t with, cpshard_bytes* shard,
                       char** error) {
  return Call(error, [&]() -> absl::Status {
    CPSHARD_RETURN_IF_ERROR(CheckGiven({{"plan", plan}}));
    CPSHARD_ASSIGN_OR_RETURN(const std::string message, plan->plan->Shard(rank, WithOf(with)));
    return Give(message, shard);
  });
}

int cpshard_plan_array(const cpshard_plan* plan, int64_t rank, int32_t array, cpshard_bytes* values,
                       char** error) {
  return Call(error, [&]() -> absl::Status {
    CPSHARD_RETURN_IF_ERROR(CheckGiven({{"plan", plan}}));
    CPSHARD_ASSIGN_OR_RETURN(const auto layout, plan->plan->LayoutOf(rank));
    return GiveArray(*layout, array, values);
  });
}

int cpshard_plan_digest(const cpshard_plan* plan, uint64_t* digest, char** error) {
  return Call(error, [&]() -> absl::Status {
    CPSHARD_RETURN_IF_ERROR(CheckGiven({{"plan", plan}, {"digest", digest}}));
    CPSHARD_ASSIGN_OR_RETURN(*digest, plan->plan->Digest());
    return absl::OkStatus();
  });
}

int cpshard_plan_stream(const cpshard_plan* plan, size_t index, cpshard_stream* stream,
                        char** error) {
  return Call(error, [&]() -> absl::Status {
    CPSHARD_RETURN_IF_ERROR(CheckGiven({{"plan", plan}, {"stream", stream}}));
    CPSHARD_ASSIGN_OR_RETURN(const EmbeddedPlan::Stream found, plan->plan->StreamAt(index));
    *stream = {.name = found.name->c_str(),
               .source = found.source != nullptr ? found.source->c_str() : nullptr,
               .writable = found.writable ? 1 : 0,
               .as_sent = found.as_sent ? 1 : 0};
    return absl::OkStatus();
  });
}

int cpshard_plan_write(const cpshard_plan* plan, const int64_t* ranks, size_t num_ranks,
                       void* const* dests, size_t num_dests, char** error) {
  return Call(error, [&]() -> absl::Status {
    CPSHARD_RETURN_IF_ERROR(
        CheckGiven({{"plan", plan}, {"ranks", ranks, num_ranks}, {"dests", dests, num_dests}}));
    return plan->plan->Write({ranks, num_ranks}, {dests, num_dests});
  });
}

int cpshard_plan_cut(const cpshard_plan* plan, const char* stream, int64_t rank, int64_t row,
                     cpshard_cut* cut, cpshard_bytes* runs, char** error) {
  return Call(error, [&]() -> absl::Status {
    CPSHARD_RETURN_IF_ERROR(CheckGiven({{"plan", plan}, {"stream", stream}, {"cut", cut}}));
    CPSHARD_ASSIGN_OR_RETURN(
        const TensorCut found,
        CutOfTensor(plan->plan->plan(), plan->plan->spec(), stream, rank, row));
    CPSHARD_RETURN_IF_ERROR(Give(found.runs, runs));
    *cut = ToC(found);
    return absl::OkStatus();
  });
}

int cpshard_plan_verify(const cpshard_plan* plan, const char* ranks_dir, const int64_t* ranks,
                        size_t num_ranks, const char* const* streams, size_t num_streams,
                        int32_t* different, cpshard_bytes* text, cpshard_bytes* json,
                        char** error) {
  return Call(error, [&]() -> absl::Status {
    CPSHARD_RETURN_IF_ERROR(CheckGiven({{"plan", plan},
                                        {"ranks_dir", ranks_dir},
                                        {"ranks", ranks, num_ranks},
                                        {"streams", streams, num_streams},
                                        {"different", different}}));
    for (size_t i = 0; i < num_streams; ++i) {
      CPSHARD_RETURN_IF_ERROR(CheckGiven({{"streams[i]", streams[i]}}));
    }
    CPSHARD_ASSIGN_OR_RETURN(
        const verify::Findings findings,
        plan->plan->Verify(ranks_dir, {ranks, num_ranks}, {streams, streams + num_streams}));
    Copy as_text(verify::ToText(findings)), as_json(verify::ToJson(findings));
    std::move(as_text).HandTo(text);
    std::move(as_json).HandTo(json);
    *different = findings.different() ? 1 : 0;
    return absl::OkStatus();
  });
}
