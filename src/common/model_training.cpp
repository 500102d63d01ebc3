// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/model/training.hpp>

#include "common/model_format.hpp"

namespace tessera::model {

namespace {

struct Recipe {
  TrainingRecipe recipe;
  char const* name;
  // Bytes per parameter.
  int master, accumulator, weights, gradients, first_moment, second_moment;
};

constexpr Recipe recipes[] = {
    {TrainingRecipe::bf16_fp32_accumulation, "bf16 with fp32 gradient accumulation", 4, 4, 2, 2, 4, 4},
    {TrainingRecipe::bf16, "bf16", 4, 0, 2, 2, 4, 4},
    {TrainingRecipe::transformer_engine, "Transformer Engine", 0, 0, 4, 4, 4, 4},
    {TrainingRecipe::fp8_lm_o3, "FP8-LM O3", 2, 2, 1, 1, 1, 2},
    {TrainingRecipe::deepseek_v3, "DeepSeek-V3", 4, 4, 1, 2, 2, 2},
    {TrainingRecipe::nanotron_fp8, "Nanotron", 2, 4, 1, 1, 1, 1},
};

Recipe const& find(char const* function, TrainingRecipe recipe) {
  for (Recipe const& r : recipes)
    if (r.recipe == recipe) return r;
  throw Error(ErrorCode::value, std::string("model::") + function + ": not a TrainingRecipe");
}

}  // namespace

std::string to_string(TrainingRecipe recipe) { return find("to_string", recipe).name; }

TrainingMemory training_memory(TrainingRecipe recipe, std::int64_t parameters) {
  detail::require_extent("training_memory", "parameters", parameters);
  Recipe const& r = find("training_memory", recipe);
  double const p = static_cast<double>(parameters);
  return {r.master * p, r.accumulator * p, r.weights * p, r.gradients * p, r.first_moment * p, r.second_moment * p};
}

std::string to_string(TrainingMemory const& m) {
  using detail::with_unit;
  return with_unit(m.total_bytes(), "B") + ": master weights " + with_unit(m.master_weights_bytes, "B") +
         ", accumulated gradients " + with_unit(m.accumulated_gradients_bytes, "B") + ", weights " +
         with_unit(m.weights_bytes, "B") + ", gradients " + with_unit(m.gradients_bytes, "B") + ", first moment " +
         with_unit(m.first_moment_bytes, "B") + ", second moment " + with_unit(m.second_moment_bytes, "B");
}

}  // namespace tessera::model
