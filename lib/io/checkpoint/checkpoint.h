#pragma once

// All that the rest of the program does with checkpoints.
#include "io/checkpoint/contents.h"
#include "io/checkpoint/directory.h"
#include "io/checkpoint/read.h"
#include "io/checkpoint/write.h"
