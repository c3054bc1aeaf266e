#pragma once

// Includes the headers of io/checkpoint that the rest of the program uses.
#include "io/checkpoint/contents.h"
#include "io/checkpoint/directory.h"
#include "io/checkpoint/read.h"
#include "io/checkpoint/write.h"
