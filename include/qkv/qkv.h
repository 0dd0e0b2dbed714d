#pragma once

// All of qkv.

#include "qkv/attention.h"
#include "qkv/conv.h"
#include "qkv/detector.h"
#include "qkv/dtype.h"
#include "qkv/error.h"
#include "qkv/export.h"
#include "qkv/file.h"
#include "qkv/gpt.h"
#include "qkv/linear.h"
#include "qkv/norm.h"
#include "qkv/npy.h"
#include "qkv/npz.h"
#include "qkv/onnx.h"
#include "qkv/safetensors.h"
#include "qkv/step.h"
#include "qkv/tensor.h"
#include "qkv/threads.h"
#include "qkv/transformer.h"
#include "qkv/version.h"
#include "qkv/vit.h"
