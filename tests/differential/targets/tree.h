/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of numbers, in a static library. */
#ifndef TREE_H_
#define TREE_H_

struct tree;

struct tree* tree_insert(struct tree* tree, int value);
void tree_visit(const struct tree* tree, void (*visit)(int value, void* state), void* state);
void tree_free(struct tree* tree);

#endif /* TREE_H_ */
