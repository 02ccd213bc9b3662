/* SPDX-License-Identifier: Apache-2.0 */
/* For moments.cc: blocks that leave a library, and blocks that come to it. */
#include <stdlib.h>

void* TakeFromPlugin(size_t size) { return malloc(size); }
void GiveToPlugin(void* pointer) { free(pointer); }
