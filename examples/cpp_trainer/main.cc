// A context-parallel training step in C++, without Python: the verbs of core/torch.
//
//   cmake -S . -B build -DCPSHARD_TORCH=<folder of the installed torch package>
//   cmake --build build --target cpp_trainer && build/bin/cpp_trainer
//
// A batch of token embeddings [B, S, H] and targets [B, S] is cut for two ranks with the round
// robin layout; each rank's forward, loss and backward run one after the other in this process;
// then the per-rank results are put back in global order. It shows that
//   * the ranks' losses add up to the loss of the uncut batch,
//   * so do the gradients of the shared weight, and that of the embeddings,
//   * joining the shards by a TokenMap and trimming gives the outputs of the uncut batch.
//
// It does not show a collective: gloo's headers are not in the torch wheel, so a C++ program cannot
// make a gloo group there. A trainer with a process group of its own (NCCL, MPI) hands it to
// cpshard::TokenGroup, and GatherTokenTensor joins the shards across processes: JoinedWithoutGroup
// below is what it computes. With Group() the same call is a step on one rank.
#include <ATen/ATen.h>

#include <cstdio>
#include <string>
#include <vector>

#include "core/torch/index_maps.h"
#include "core/torch/token_map.h"
#include "core/torch/token_verbs.h"

namespace {

using cpshard::CpRank;
using cpshard::TokenMap;

constexpr int64_t kBatch = 2, kLength = 10, kHidden = 8, kRanks = 2;
constexpr int64_t kIgnored = -100;  // the target of a pad

struct Step {
  at::Tensor outputs;  // [B, L]
  at::Tensor loss;     // sum over the tokens that have a target
};

Step Forward(const at::Tensor& embeds, const at::Tensor& targets, const at::Tensor& weight) {
  const at::Tensor outputs = at::matmul(embeds, weight);
  const at::Tensor counted = targets.ne(kIgnored);
  return {outputs, (outputs - targets).square().masked_fill(~counted, 0).sum()};
}

// What GatherTokenTensor computes of the shards that the ranks hold, all of them at hand.
at::Tensor JoinedWithoutGroup(const std::vector<at::Tensor>& shards, const TokenMap& map) {
  return at::cat(shards, 1).index_select(1, map.order);
}

// The map of all ranks: run by run, as a layout reports them.
TokenMap RoundRobinMap(int64_t padded) {
  std::vector<at::Tensor> runs;
  const int64_t chunk = padded / (2 * kRanks);
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    for (const int64_t piece : {rank, 2 * kRanks - 1 - rank}) {
      runs.push_back(at::tensor({rank, piece * chunk, chunk}, at::kLong));
    }
  }
  return cpshard::MakeTokenMap(at::stack(runs), std::vector<int64_t>(kRanks, 2 * chunk), padded);
}

bool Expect(bool holds, const std::string& what) {
  std::printf("%s  %s\n", holds ? "yes" : "NO ", what.c_str());
  return holds;
}

bool OneStepOnTwoRanks() {
  const at::Tensor embeds = at::randn({kBatch, kLength, kHidden}).requires_grad_();
  const at::Tensor weight = at::randn({kHidden}).requires_grad_();
  const at::Tensor targets = at::randint(0, 5, {kBatch, kLength}, at::kLong);
  const Step whole = Forward(embeds, targets, weight);
  whole.loss.backward();
  const at::Tensor whole_embeds = embeds.grad().clone(), whole_weight = weight.grad().clone();
  embeds.mutable_grad().zero_();
  weight.mutable_grad().zero_();

  std::vector<at::Tensor> outputs;
  double loss = 0;
  cpshard::TokenTensorLayout layout;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const auto shard = cpshard::ShardSequenceForCpRoundRobin(CpRank{rank, kRanks}, embeds);
    layout.original_seq_len = kLength;
    layout.padded_seq_len = shard.padded_seq_len;
    const at::Tensor labels =
        cpshard::ShardTokenTensor(targets, shard.local_indices, layout, 1, kIgnored);
    const Step step = Forward(shard.local, labels, weight);
    step.loss.backward();
    outputs.push_back(step.outputs.detach());
    loss += step.loss.item<double>();
  }

  const TokenMap map = RoundRobinMap(layout.padded_seq_len->expect_int());
  const at::Tensor joined = JoinedWithoutGroup(outputs, map).narrow(1, 0, kLength);
  bool all = Expect(at::allclose(at::tensor(loss), whole.loss.to(at::kDouble), 1e-4),
                    "the ranks' losses add up to the loss of the whole batch");
  all &= Expect(at::allclose(weight.grad(), whole_weight, 1e-4, 1e-5),
                "their gradients of the weight add up, too");
  all &= Expect(at::equal(embeds.grad(), whole_embeds), "every embedding has its own gradient");
  all &= Expect(at::allclose(joined, whole.outputs, 1e-4, 1e-6),
                "the joined and trimmed shards are the outputs of the whole batch");
  return all;
}

bool OneStepOnOneRank() {
  const at::Tensor tokens = at::arange(kBatch * kLength).view({kBatch, kLength});
  const at::Tensor indices = cpshard::IdentityLocalIndices(kLength);
  cpshard::TokenTensorLayout layout;
  layout.original_seq_len = layout.padded_seq_len = kLength;
  const at::Tensor shard = cpshard::ShardTokenTensor(tokens, indices, layout);
  const TokenMap map = cpshard::MakeTokenMap(
      at::tensor({int64_t{0}, int64_t{0}, kLength}).view({1, 3}), {kLength}, kLength);
  const at::Tensor gathered =
      cpshard::GatherTokenTensor(shard, map, layout, cpshard::TokenGroup(), {.trim = true});
  return Expect(at::equal(gathered, tokens), "without a group, shard and gather give the tensor");
}

}  // namespace

int main() {
  at::manual_seed(1);
  const bool two = OneStepOnTwoRanks(), one = OneStepOnOneRank();
  return two && one ? 0 : 1;
}
