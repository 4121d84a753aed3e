// The two macros that absl 20220623 lacks. Both leave the enclosing function on a status that is
// not OK.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define CPSHARD_CONCAT_INNER(a, b) a##b
#define CPSHARD_CONCAT(a, b) CPSHARD_CONCAT_INNER(a, b)

#define CPSHARD_RETURN_IF_ERROR(expr)                                 \
  do {                                                                \
    if (absl::Status cpshard_status = (expr); !cpshard_status.ok()) { \
      return cpshard_status;                                          \
    }                                                                 \
  } while (false)

#define CPSHARD_ASSIGN_OR_RETURN(lhs, expr) \
  CPSHARD_ASSIGN_OR_RETURN_IMPL(CPSHARD_CONCAT(cpshard_statusor_, __LINE__), lhs, expr)

#define CPSHARD_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return std::move(tmp).status();      \
  lhs = *std::move(tmp)
