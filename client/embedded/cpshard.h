/* cpshard in the caller's process: plans, shards and comparisons of batches behind a C interface.
 *
 * Messages cross as serialized cpshard.v1 protobuf, tensors as pointers to their bytes (dense,
 * row-major, little endian, a bool is one byte; any alignment; docs/WIRE.md). Nothing is copied but
 * what a shard holds; the memory of tensors belongs to the caller.
 *
 * Every function returns a gRPC status code: 0 OK, 3 INVALID_ARGUMENT, 5 NOT_FOUND,
 * 8 RESOURCE_EXHAUSTED, 9 FAILED_PRECONDITION, 12 UNIMPLEMENTED, 13 INTERNAL. On another code than
 * 0 nothing is written to the outputs but `*error`, a text to be freed with cpshard_free (`error`
 * may be null); it names stream, row and numbers and the way out. On 0 `*error` is left as it is.
 * INVALID_ARGUMENT, too: a pointer that is null and is neither said to be possible, nor an array of
 * no elements. A cpshard_bytes may be null where its contents are not wanted.
 *
 * Limits are those of the server (architecture, section 9): 256 entries of 8 dims and 128 bytes of
 * name, 4,096 ranks, 2 GiB of batch and of the shards asked for. What is over them is refused with
 * INVALID_ARGUMENT before anything is allocated.
 *
 * One process holds one copy of the messages' code. A C++ program that links cpshard::client has it
 * already: it uses that library's classes, not this one.
 *
 * Threads: functions may be called from any thread at once, on one plan too; cpshard_plan_free must
 * be the last call on its plan. The library starts no threads and may be used after a fork.
 */
#ifndef CPSHARD_EMBEDDED_CPSHARD_H_
#define CPSHARD_EMBEDDED_CPSHARD_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CPSHARD_API __attribute__((visibility("default")))

/* Of this header. A caller compares it with what cpshard_abi_version returns. */
#define CPSHARD_ABI_VERSION 1

CPSHARD_API uint32_t cpshard_abi_version(void);

/* Memory that a function returned; to be given to cpshard_free. */
typedef struct cpshard_bytes {
  void* data; /* null when size is 0 */
  size_t size;
} cpshard_bytes;

/* `data` of a cpshard_bytes or an error's text; null does nothing. */
CPSHARD_API void cpshard_free(void* data);

/* A serialized ShardingOptions from its JSON form (options.proto), as the server reads it.
 * INVALID_ARGUMENT: not JSON, an unknown field, a wrong type. */
CPSHARD_API int cpshard_options_from_json(const char* json, size_t size, cpshard_bytes* message,
                                          char** error);

/* The plan of a batch. It holds the tensors' pointers, not their bytes. */
typedef struct cpshard_plan cpshard_plan;

/* `request`, `size`: a PlanLayoutRequest of which options, cp_size, ranks (none = all) and entries
 * count; entries are specs: offset, nbytes and the body are ignored.
 *
 * Names of the streams whose values the plan would read, in PlanLayoutReply.needs; nothing else is
 * set. Costs no more than reading the request. */
CPSHARD_API int cpshard_needs(const void* request, size_t size, cpshard_bytes* reply, char** error);

/* tensors[i] are the bytes of the i-th entry that is a tensor. Null: not at hand (on a device,
 * say); such a stream can be planned and cut by cpshard_plan_cut, not written; of a tensor without
 * elements any pointer will do. The bytes must stay as they are until the last call on the plan.
 * Errors: what the layout refuses (contract, section 13); FAILED_PRECONDITION: the layout reads the
 * values of a stream whose pointer is null. */
CPSHARD_API int cpshard_plan_create(const void* request, size_t size, const void* const* tensors,
                                    size_t num_tensors, cpshard_plan** plan, char** error);

CPSHARD_API void cpshard_plan_free(cpshard_plan* plan); /* null does nothing */

/* What goes into a message beside what is always there. */
enum {
  /* ShardLayout.batch_digest: one pass over all bytes, the first time. Else it is 0. */
  CPSHARD_WITH_DIGEST = 1,
  /* totals, loads, documents and their notices: one pass over labels and masks, the first time.
   * What is counted of a stream whose pointer is null is not there: `supervised` of labels, for
   * one. */
  CPSHARD_WITH_TOTALS = 2,
  /* Arrays of layouts stand in the message. Without it a field that is present stays present with
   * its shape and no values, and `runs` are left out: see cpshard_plan_array. */
  CPSHARD_WITH_ARRAYS = 4
};

/* A PlanLayoutReply for `ranks` (num_ranks 0 = those of the request), of any size. */
CPSHARD_API int cpshard_plan_reply(const cpshard_plan* plan, const int64_t* ranks, size_t num_ranks,
                                   uint32_t with, cpshard_bytes* reply, char** error);

/* The Shard of a rank: layout, entries (tensors first: name, dtype, dims, nbytes, extent, seq_axis;
 * offset 0; then scalars), and load with CPSHARD_WITH_TOTALS. */
CPSHARD_API int cpshard_plan_shard(const cpshard_plan* plan, int64_t rank, uint32_t with,
                                   cpshard_bytes* shard, char** error);

/* An array of a rank's ShardLayout. */
enum cpshard_array {
  CPSHARD_RUNS = 0,     /* runs: [n, 2], first padded column and length, in slot order */
  CPSHARD_INDICES = 1,  /* local_token_global_indices: [L] or [1, L] */
  CPSHARD_POSITIONS = 2 /* input_token_stream_positions: [B, S] */
};

/* Its int64 values, row-major; none where the layout does not report it. Reads no tensor's bytes:
 * the batch may be gone. */
CPSHARD_API int cpshard_plan_array(const cpshard_plan* plan, int64_t rank, int32_t array,
                                   cpshard_bytes* values, char** error);

/* XXH3-64 of the batch (docs/WIRE.md), made once. FAILED_PRECONDITION: a tensor without bytes. */
CPSHARD_API int cpshard_plan_digest(const cpshard_plan* plan, uint64_t* digest, char** error);

/* What a Shard's s-th tensor is made of. The strings belong to the plan. */
typedef struct cpshard_stream {
  const char* name;
  const char* source; /* the tensor of the batch it comes of; null: the layout makes it itself */
  int32_t writable;   /* 0: the source's pointer was null */
  int32_t as_sent;    /* 1: every rank gets the source as it is */
} cpshard_stream;

/* NOT_FOUND: `index` is not below the number of tensors of a Shard. */
CPSHARD_API int cpshard_plan_stream(const cpshard_plan* plan, size_t index, cpshard_stream* stream,
                                    char** error);

/* Writes shards. dests[k * n + s] receives the s-th tensor of the Shard of ranks[k], n being the
 * number of tensors of a Shard (num_dests = num_ranks * n), nbytes of it, which overlap nothing.
 * Null: not wanted. A stream that is EXTENT_LOCAL is wanted by all of `ranks` or by none; one that
 * all ranks hold alike need only be written once.
 * FAILED_PRECONDITION: a wanted stream is made of a tensor whose pointer was null. */
CPSHARD_API int cpshard_plan_write(const cpshard_plan* plan, const int64_t* ranks, size_t num_ranks,
                                   void* const* dests, size_t num_dests, char** error);

/* How a stream comes of one tensor of the batch, for callers that cut it themselves: one that is on
 * a device, or that a gradient goes through. First the source is given the shape `dims` (reshaped,
 * or expanded where `broadcast`); then, of every row, slot i of the output takes the column that
 * the runs give it, or `fill`. The strings and dims belong to the plan. */
typedef struct cpshard_cut {
  const char* source;  /* the name of the tensor */
  int32_t extent;      /* cpshard.v1.Extent; 3, WHOLE: the source as it is, there are no runs */
  int32_t axis;        /* of dims: the columns */
  int32_t batch_axis;  /* of dims: whose index is the row; -1: all are row 0 */
  int32_t broadcast;   /* 1: the source's one row stands for all */
  int64_t rows;        /* different lists of runs; 1: all rows alike */
  int64_t chunks;      /* above 1: runs of chunk after chunk, and the output is [chunks, L, ...] */
  const int64_t* dims; /* of the source before the cut */
  size_t num_dims;
  uint64_t fill; /* the low bytes are one element of the stream's dtype */
} cpshard_cut;

/* `runs`: int64 [n, 2] of row `row` (below rows) in slot order: first source column or -1, length.
 * NOT_FOUND: no such stream. FAILED_PRECONDITION: the stream is computed, not cut (another dtype, a
 * comparison, positions that go on into the padding, two fills): write it with
 * cpshard_plan_write. */
CPSHARD_API int cpshard_plan_cut(const cpshard_plan* plan, const char* stream, int64_t rank,
                                 int64_t row, cpshard_cut* cut, cpshard_bytes* runs, char** error);

/* Compares shards that somebody else made of the batch, DIR/rank<r>.safetensors, with ours, and
 * explains the first difference of every stream. `ranks`, `streams` (names): those to compare;
 * none = all. `*different` is 0 or 1; `text` and `json` (`cpshard verify`'s, either may be null)
 * are not terminated. NOT_FOUND: no such folder or stream, or not the file of a rank asked for. */
CPSHARD_API int cpshard_plan_verify(const cpshard_plan* plan, const char* ranks_dir,
                                    const int64_t* ranks, size_t num_ranks,
                                    const char* const* streams, size_t num_streams,
                                    int32_t* different, cpshard_bytes* text, cpshard_bytes* json,
                                    char** error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CPSHARD_EMBEDDED_CPSHARD_H_ */
