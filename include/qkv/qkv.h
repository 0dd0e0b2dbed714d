#pragma once

// All of qkv.

#include "qkv/attention.h"
#include "qkv/dtype.h"
#include "qkv/error.h"
#include "qkv/tensor.h"
#include "qkv/threads.h"
#include "qkv/version.h"
