/* SPDX-License-Identifier: Apache-2.0 */
#include "tree.h"

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

struct tree {
  struct tree *left, *right;
  int value;
  char* name;
};

struct tree* tree_insert(struct tree* tree, int value) {
  if (tree == NULL) {
    tree = calloc(1, sizeof *tree);
    tree->value = value;
    if (asprintf(&tree->name, "number %d", value) < 0) {
      abort();
    }
  } else if (value < tree->value) {
    tree->left = tree_insert(tree->left, value);
  } else {
    tree->right = tree_insert(tree->right, value);
  }
  return tree;
}

void tree_visit(const struct tree* tree, void (*visit)(int value, void* state), void* state) {
  if (tree != NULL) {
    tree_visit(tree->left, visit, state);
    visit(tree->value, state);
    tree_visit(tree->right, visit, state);
  }
}

void tree_free(struct tree* tree) {
  if (tree != NULL) {
    tree_free(tree->left);
    tree_free(tree->right);
    free(tree->name);
    free(tree);
  }
}
