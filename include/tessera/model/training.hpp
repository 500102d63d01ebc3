// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_MODEL_TRAINING_HPP
#define TESSERA_MODEL_TRAINING_HPP

#include <array>
#include <cstdint>
#include <string>

namespace tessera::model {

/// Mixed-precision training recipes with Adam. Bytes per parameter, in the order master weights + gradient accumulator
/// + weights + gradients + first and second moment.
enum class TrainingRecipe {
  bf16_fp32_accumulation,  ///< 4 + 4 + 2 + 2 + 4 + 4 = 20: bf16 with fp32 master weights and fp32 accumulated gradients
  bf16,                    ///< 4 + 0 + 2 + 2 + 4 + 4 = 16: the same without the fp32 accumulator
  transformer_engine,      ///< 0 + 0 + 4 + 4 + 4 + 4 = 16: fp8 products, everything kept in fp32
  fp8_lm_o3,               ///< 2 + 2 + 1 + 1 + 1 + 2 = 9: FP8-LM (Peng et al., 2023), level O3
  deepseek_v3,             ///< 4 + 4 + 1 + 2 + 2 + 2 = 15: DeepSeek-V3 technical report (2024)
  nanotron_fp8,            ///< 2 + 4 + 1 + 1 + 1 + 1 = 10: Nanotron's fp8 recipe
};

inline constexpr std::array<TrainingRecipe, 6> all_training_recipes = {TrainingRecipe::bf16_fp32_accumulation,
                                                                       TrainingRecipe::bf16,
                                                                       TrainingRecipe::transformer_engine,
                                                                       TrainingRecipe::fp8_lm_o3,
                                                                       TrainingRecipe::deepseek_v3,
                                                                       TrainingRecipe::nanotron_fp8};

std::string to_string(TrainingRecipe recipe);

/// Memory that a training step keeps for its parameters, in bytes; activations come on top.
struct TrainingMemory {
  double master_weights_bytes = 0;
  double accumulated_gradients_bytes = 0;
  double weights_bytes = 0;
  double gradients_bytes = 0;
  double first_moment_bytes = 0;
  double second_moment_bytes = 0;
  double total_bytes() const {
    return master_weights_bytes + accumulated_gradients_bytes + weights_bytes + gradients_bytes + first_moment_bytes +
           second_moment_bytes;
  }
};

/// Bytes for a model of so many parameters. The table is that of the Ultra-Scale Playbook (Hugging Face, 2025).
/// \throws Error{extent} for a negative number, Error{value} for a recipe that is none of the enumerators.
TrainingMemory training_memory(TrainingRecipe recipe, std::int64_t parameters);

/// "160 GB: master weights 32 GB, ..."
std::string to_string(TrainingMemory const& memory);

}  // namespace tessera::model

#endif
