#pragma once

#include "kernels/attention/attention.h"
#include "qkv/attention.h"
#include "qkv/plan.h"

namespace qkv {

// The edge of the operator: refuses every argument that does not fit, naming what was expected and
// what was found, and resolves the rest into the problem that kernels take. Writes nothing.
AttentionProblem check_attention(const TensorView& query, const TensorView& key,
                                 const TensorView& value, const MutableTensorView& out,
                                 const AttentionOptions& options, const AttentionStages& stages);

// The same for shapes alone: a problem without tensors, for planning. The options' target is not
// looked at.
AttentionProblem check_attention_shape(const AttentionShape& shape,
                                       const AttentionOptions& options);

}  // namespace qkv
