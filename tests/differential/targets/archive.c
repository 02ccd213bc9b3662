/* SPDX-License-Identifier: Apache-2.0 */
/* A part of a program that comes from a static library (tree.c). */
#include "keep.h"
#include "tree.h"

static void visit(int value, void* sum) {
  keep(200 + (size_t)value);
  *(int*)sum += value;
}

int main(void) {
  int sum = 0;
  for (int round = 0; round < 100; round++) {
    struct tree* tree = NULL;
    for (int i = 0; i < 100; i++) {
      tree = tree_insert(tree, i * 37 % 101);
    }
    tree_visit(tree, visit, &sum);
    tree_free(tree);
  }
  return sum == 0;
}
