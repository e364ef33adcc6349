#pragma once

#include <dlaunch/c/communicator.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A structured value: null, bool, integer, real number, text, tensor, list, tuple or dictionary
 * (keys are text, the order of keys is kept and does not matter when comparing). Travels in a
 * binary form of its own that holds data, never code; at most 64 levels deep.
 * In C: it goes in and comes out as JSON text, with its tensors beside it, so that no element is
 * ever spelled out:
 *
 *   float weights[6]; int64_t shape[2] = {2, 3};
 *   dl_tensor tensors[1] = {{weights, DL_F32, 2, shape, NULL}};
 *   dl_tree_parse("{\"step\": 7, \"weights\": {\"$tensor\": 0}}", tensors, 1, &tree);
 *   dl_tree_json(tree, -1, &text);
 *      -> {"step":7,"weights":{"$tensor":0,"dtype":"f32","shape":[2,3]}}
 *   dl_tree_tensor(tree, 0, &tensor);
 *
 * A value that JSON has no word for is a dictionary whose first key begins with a dollar sign:
 *   {"$tensor": i}      the i-th tensor; dl_tree_json numbers them in the order of the text and
 *                       adds dtype and shape, which dl_tree_parse ignores
 *   {"$tuple": [...]}   a tuple
 *   {"$real": "nan"}    also "inf" and "-inf"
 *   {"$bytes": "00ff"}  text that is not UTF-8, in hexadecimal digits
 * A dictionary's own keys that begin with a dollar sign get another one in front. Numbers with a
 * point or an exponent, and those beyond 64 bits, are real, others integers. The text that
 * dl_tree_json wrote, and the tensors, give the same value again.
 *
 * Once made it does not change; any thread may read it. */
typedef struct dl_tree dl_tree;

/* An array in row-major order. */
typedef struct dl_tensor {
  const void* data;
  dl_dtype dtype;
  int32_t axes;         /* 0..64; 0 is a scalar of one element. */
  const int64_t* shape; /* `axes` extents; may be null if there are none. */
  /* Elements from one to the next along each axis; null: packed. Always null in results. */
  const int64_t* strides;
} dl_tensor;

/* What dl_tree_json wrote, with its tensors, and any other JSON. DL_MISUSE says what is wrong with
 * it, and where.
 * In C: tensors are copied. */
DL_API dl_status dl_tree_parse(const char* json, const dl_tensor* tensors, size_t count,
                               dl_tree** tree);
/* `indent` spaces a level, or all in one line if negative. DL_MISUSE: a dictionary's key is not
 * UTF-8. Free `text` with dl_free. */
DL_API dl_status dl_tree_json(const dl_tree* tree, int indent, char** text);
DL_API size_t dl_tree_tensor_count(const dl_tree* tree); /* 0 for null. */
/* The tensor that the text calls {"$tensor": index}; lives as long as the tree. */
DL_API dl_status dl_tree_tensor(const dl_tree* tree, size_t index, dl_tensor* tensor);
/* 1 if both have the same value, whatever the order of their dictionaries' keys; 0 with a null. */
DL_API int dl_tree_equal(const dl_tree* a, const dl_tree* b);
/* Null is fine. */
DL_API void dl_tree_free(dl_tree* tree);

/* The binary form in which it travels, to keep in a store or a file. */
DL_API dl_status dl_tree_encode(const dl_tree* tree, dl_bytes* bytes);
/* Takes what dl_tree_encode made. DL_MISMATCH for anything else; allocates no more than the input's
 * size justifies. */
DL_API dl_status dl_tree_decode(const void* data, size_t bytes, dl_tree** tree);

/* ---- Structured values: dictionaries, lists, tensors, numbers, text; see dl_tree.
 * In C: a null tree stands for the value null. ---- */

/* Everyone gets root's value, shape and types included; `value` is read on the root alone.
 * DL_MISMATCH: another root on another rank. DL_MISUSE: no such root. */
DL_API dl_status dl_broadcast_object(dl_comm* comm, const dl_tree* value, int root,
                                     dl_tree** result, const dl_options* options);
/* Everyone's value, in rank order, each as it is.
 * In C: results[r] is that of rank r, of dl_comm_size(comm). */
DL_API dl_status dl_all_gather_objects(dl_comm* comm, const dl_tree* value, dl_tree** results,
                                       const dl_options* options);
/* One tree of the same structure whose tensors got a new leading axis over the ranks; numbers and
 * booleans count as tensors of one element, text and null become lists. Also in a world of one.
 * Structures that differ: DL_MISMATCH with the first path that does. */
DL_API dl_status dl_all_gather_stacked(dl_comm* comm, const dl_tree* value, dl_tree** result,
                                       const dl_options* options);
/* One tree of the same structure whose tensors and numbers are reduced over the ranks. Text and
 * null must be the same everywhere: DL_MISMATCH with the first path that is not. */
DL_API dl_status dl_all_reduce_object(dl_comm* comm, const dl_tree* value, dl_reduction reduction,
                                      dl_tree** result, const dl_options* options);
/* Root's result has everyone's value, the others' is empty. Errors as dl_broadcast_object.
 * In C: the others' `results` is not written and may be null. */
DL_API dl_status dl_gather_objects(dl_comm* comm, const dl_tree* value, int root, dl_tree** results,
                                   const dl_options* options);
/* values[r] of root goes to rank r; read on the root alone. Errors as dl_broadcast_object;
 * DL_MISUSE also where there is not one value for each rank.
 * In C: there are dl_comm_size(comm) of them. */
DL_API dl_status dl_scatter_objects(dl_comm* comm, const dl_tree* const* values, int root,
                                    dl_tree** result, const dl_options* options);
/* As dl_send and dl_recv; what is no value is DL_MISMATCH. */
DL_API dl_status dl_send_object(dl_comm* comm, const dl_tree* value, int to,
                                const dl_options* options);
DL_API dl_status dl_recv_object(dl_comm* comm, int from, dl_tree** result,
                                const dl_options* options);

#ifdef __cplusplus
}
#endif
